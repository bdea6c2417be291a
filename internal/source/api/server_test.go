// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
)

// token is the node's.
const token = "lb1.secret"

// server is an API server with connections in memory, so that it runs in the time of synctest.
type server struct {
	mu      sync.Mutex
	version int
	// objects are LoadBalancers as JSON, by name; lines are the lines of all changes.
	objects map[string]string
	lines   []string
	// changed is closed when there are more lines.
	changed chan struct{}
	// watch, unless it is nil, answers in place of the server.
	watch http.HandlerFunc
	// identity is the file's; replaces has nodes accept another one.
	identity string
	replaces bool
	// silent servers send nothing after the objects.
	silent bool
	// busy is how many reports and statistics are refused.
	busy int
	// watches counts the requests to watch, reports and statistics are from the node.
	watches    int
	reports    []v1alpha1.BalancerNodeStatus
	statistics []v1alpha1.BalancerNodeStatisticsStatus

	// running is nil while the server is down.
	running *http.Server
	conns   chan net.Conn
}

func newServer(t *testing.T) *server {
	s := &server{objects: map[string]string{}, changed: make(chan struct{})}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = make(chan net.Conn)
	s.running = &http.Server{Handler: s}
	go func(running *http.Server, l *listener) { _ = running.Serve(l) }(s.running, &listener{conns: s.conns, closed: make(chan struct{})})
}

// kill ends the server and all connections.
func (s *server) kill() {
	s.mu.Lock()
	running := s.running
	s.running = nil
	s.mu.Unlock()
	if running != nil {
		_ = running.Close()
	}
}

// transport returns a transport to servers by their host names.
func transport(servers map[string]*server) func(*tls.Config) http.RoundTripper {
	return func(*tls.Config) http.RoundTripper {
		return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			return servers[host].dial(ctx)
		}}
	}
}

func (s *server) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	running, conns := s.running, s.conns
	s.mu.Unlock()
	if running == nil {
		return nil, syscall.ECONNREFUSED
	}
	client, server := net.Pipe()
	select {
	case conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listener accepts connections that are dialled in memory.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{} }

// put adds or replaces an object.
func (s *server) put(t *testing.T, b *v1alpha1.LoadBalancer) {
	t.Helper()
	s.mu.Lock()
	b.ResourceVersion = fmt.Sprint(s.version + 1)
	s.mu.Unlock()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	s.putText(b.Name, string(text))
}

// putText adds or replaces an object that need not be valid.
func (s *server) putText(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.objects[name] = text
	s.send(`{"type":"PUT","object":` + text + `}`)
}

func (s *server) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	delete(s.objects, name)
	s.send(fmt.Sprintf(`{"type":"DELETE","object":{"metadata":{"namespace":"web","name":%q,"resourceVersion":"%d"}}}`, name, s.version))
}

// send sends a line to all clients, with the lock held.
func (s *server) send(line string) {
	s.lines = append(s.lines, line)
	close(s.changed)
	s.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"title":"Unauthorized","status":401,"detail":"want a valid bearer token"}`)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/watch":
		s.mu.Lock()
		s.watches++
		other := s.watch
		s.mu.Unlock()
		if other == nil {
			other = s.serveWatch
		}
		other(w, r)
	case "PUT /v1/nodes/lb1/report":
		receive(s, w, r, &s.reports)
	case "PUT /v1/nodes/lb1/statistics":
		receive(s, w, r, &s.statistics)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// receive appends the body of a request.
func receive[T any](s *server, w http.ResponseWriter, r *http.Request, to *[]T) {
	var body T
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 {
		s.busy--
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	*to = append(*to, body)
}

func (s *server) serveWatch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	var text strings.Builder
	s.mu.Lock()
	for _, object := range s.objects {
		fmt.Fprintf(&text, `{"type":"PUT","object":%s}`+"\n", object)
	}
	fmt.Fprintf(&text, `{"type":"SYNCED","version":"%d","identity":%q,"replaces":%t}`+"\n", s.version, s.identity, s.replaces)
	sent := len(s.lines)
	s.mu.Unlock()
	_, _ = io.WriteString(w, text.String())
	for {
		s.mu.Lock()
		lines, changed, silent := s.lines[sent:], s.changed, s.silent
		sent = len(s.lines)
		s.mu.Unlock()
		for _, line := range lines {
			_, _ = io.WriteString(w, line+"\n")
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			if !silent {
				_, _ = io.WriteString(w, `{"type":"ALIVE"}`+"\n")
			}
		case <-r.Context().Done():
			return
		}
	}
}

// counted returns the statistics that the node has written.
func (s *server) counted() []v1alpha1.BalancerNodeStatisticsStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statistics
}

// written returns how often the objects were requested, and the reports.
func (s *server) written() (watches int, reports []v1alpha1.BalancerNodeStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches, s.reports
}
