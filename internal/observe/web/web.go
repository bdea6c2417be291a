// SPDX-License-Identifier: Apache-2.0

// Package web shows an agent over HTTP: a status page, the data behind it as JSON,
// metrics, and whether the agent is alive and ready. The agent serves it.
//
// There is no authentication unless Config has it: everyone who reaches the address can read
// everything, and nothing can be changed. All answers come from the observer's latest snapshot,
// so that the data plane's load doesn't depend on the number of requests.
package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/observe"
)

const (
	// connections is how many may be open at once, maxStreams how many of them may
	// be a live view.
	connections = 128
	maxStreams  = 32
)

// HealthPath and ReadyPath answer probes: whether the agent is alive, and should get traffic.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// Config is what a Server shows.
type Config struct {
	Observer *observe.Observer
	// Ready returns why the agent should get no traffic, nil if it should.
	Ready func() error
	// Metrics are those of the agent's parts, which /metrics has too.
	Metrics []prometheus.Collector
	// Admit, if it isn't nil, lets only some requests reach a handler.
	Admit func(http.Handler) http.Handler
	Log   *slog.Logger
}

// Server answers people and scrapers.
type Server struct {
	Config
	streams chan struct{}
}

// New returns a server.
func New(c Config) *Server {
	return &Server{Config: c, streams: make(chan struct{}, maxStreams)}
}

// Serve answers on the listener, which it closes, until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	handler := s.handler()
	if s.Admit != nil {
		handler = s.Admit(handler)
	}
	return serve(ctx, listener, handler, s.Log)
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &httpd.Server{
		Name: "status page", Handler: secure(handler, isLoopback(listener.Addr())), Connections: connections, Log: log,
	}
	return server.Serve(ctx, listener)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, asset := range assets() {
		mux.Handle(path, asset)
	}
	answer := httpd.JSON{Log: s.Log}.Handler
	mux.HandleFunc("/api/v1/status", answer(s.status))
	mux.HandleFunc("/api/v1/services", answer(s.services))
	mux.HandleFunc("/api/v1/backends", answer(s.backends))
	mux.HandleFunc("/api/v1/routes", answer(s.routes))
	mux.HandleFunc("/api/v1/history", answer(s.history))
	mux.HandleFunc("/api/v1/events", answer(s.events))
	mux.HandleFunc("/api/v1/stream", s.stream)
	mux.Handle("/metrics", metricsHandler(s.Log, append(s.Metrics, agentMetrics(s.Observer))...))
	mux.HandleFunc(HealthPath, check(s.Observer.Alive))
	mux.HandleFunc(ReadyPath, check(s.Ready))
	return mux
}

// check answers whether something finds nothing wrong: 200 and "ok", or 503 and
// what it found, one reason a line.
func check(wrong func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := wrong(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "ok", http.StatusOK)
	}
}

// ServeReflector shows a route reflector over HTTP: status and routes as JSON, metrics,
// and whether it lives and is ready. It has no page. It answers on the listener, which
// it closes, until ctx ends.
func ServeReflector(ctx context.Context, listener net.Listener, r observe.Reflector, log *slog.Logger) error {
	mux := http.NewServeMux()
	answer := httpd.JSON{Log: log}.Handler
	mux.HandleFunc("/api/v1/status", answer(func(http.ResponseWriter, *http.Request) (any, error) { return r.Status(), nil }))
	mux.HandleFunc("/api/v1/routes", answer(func(http.ResponseWriter, *http.Request) (any, error) { return r.Shown(), nil }))
	mux.Handle("/metrics", metricsHandler(log, reflectorMetrics(r)))
	mux.HandleFunc(HealthPath, check(func() error { return nil })) // it is alive if it answers
	mux.HandleFunc(ReadyPath, check(r.Ready))
	return serve(ctx, listener, mux, log)
}

// ServePage serves other pages with the same style, headers and bounds: the handler's, and
// /assets/. It answers on the listener, which it closes, until ctx ends.
func ServePage(ctx context.Context, listener net.Listener, pages http.Handler, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	for path, asset := range assets() {
		if strings.HasPrefix(path, "/assets/") {
			mux.Handle(path, asset)
		}
	}
	return serve(ctx, listener, mux, log)
}

// policy is the page's Content-Security-Policy: nothing from other origins, nothing
// inline, no framing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets security headers and rejects requests that don't only read, that have
// a body or, at a loopback address, that name another host.
func secure(next http.Handler, local bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet:
			header.Set("Allow", http.MethodGet)
			header.Set("Connection", "close") // what a body holds is not read
			http.Error(w, "only GET is answered here", http.StatusMethodNotAllowed)
		case r.ContentLength != 0: // -1 is a body of unknown length
			header.Set("Connection", "close")
			http.Error(w, "a request has no body here", http.StatusBadRequest)
		case local && !isLocalName(r.Host):
			http.Error(w, fmt.Sprintf("host %q: want an IP address or localhost", r.Host), http.StatusMisdirectedRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocalName reports whether a Host header is valid for a loopback listener. It
// prevents DNS rebinding: a page of another origin whose name resolves to 127.0.0.1
// sends that name. A request of HTTP/1.0 has no host, and browsers don't send one.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// The page has no build step and loads nothing from other origins.
//
//go:embed assets
var files embed.FS

const indexFile = "index.html"

// assets returns a handler for each file by its pattern; the index is the page.
func assets() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	entries, _ := files.ReadDir("assets") // what is embedded can be read
	for _, e := range entries {
		content, _ := files.ReadFile(path.Join("assets", e.Name()))
		pattern := "/assets/" + e.Name()
		if e.Name() == indexFile {
			pattern = "/{$}"
		}
		handlers[pattern] = asset(e.Name(), content)
	}
	return handlers
}

// asset serves a file, revalidated by its ETag: another agent version may have
// another page.
func asset(name string, content []byte) http.Handler {
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType(name))
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// contentType doesn't depend on the host's MIME table, which may lack a type.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(path.Ext(name))
	}
}
