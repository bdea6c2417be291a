// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// serveFree has a free port served, another one if a process takes it before.
func serveFree(t *testing.T, h *healthPorts, p HealthPort) (port uint16, address string) {
	t.Helper()
	for range 100 {
		free, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		p.Port = uint16(free.Addr().(*net.TCPAddr).Port)
		free.Close()
		h.set(map[uint16]HealthPort{p.Port: p})
		h.mu.Lock()
		_, served := h.servers[p.Port]
		h.mu.Unlock()
		if served {
			return p.Port, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Port)))
		}
	}
	t.Fatal("no port is free")
	return 0, ""
}

// Responses equal kube-proxy's; a port in use is skipped.
func TestHealthPorts(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := uint16(taken.Addr().(*net.TCPAddr).Port)
	web := Object{Kind: KindService, Namespace: "default", Name: "web"}
	h := &healthPorts{log: slog.New(slog.DiscardHandler), servers: map[uint16]*healthServer{}}
	defer h.close()
	port, address := serveFree(t, h, HealthPort{Object: web})
	for local, want := range []string{
		`503 {"service":{"namespace":"default","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`,
		`200 {"service":{"namespace":"default","name":"web"},"localEndpoints":1,"serviceProxyHealthy":true}`,
	} {
		h.set(map[uint16]HealthPort{port: {web, port, local}, used: {web, used, local}})
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := response.Status[:4] + strings.TrimSpace(string(body)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if len(h.servers) != 1 || h.retry == nil {
		t.Errorf("%d servers, want one, and another try for the other port", len(h.servers))
	}
	h.set(nil)
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("a port is served that no Service wants")
	}
}

// A node's health checks count its ready endpoints, each once.
func TestReadyOn(t *testing.T) {
	web := Object{Kind: KindService, Namespace: "default", Name: "web"}
	on := func(node string, number byte, condition spec.EndpointCondition) endpoint {
		return endpoint{address: netip.AddrFrom4([4]byte{10, 0, 0, number}), node: node, condition: condition}
	}
	all := serviceSlices{all: map[Object]map[string]*slice{web: {
		"a": {endpoints: []endpoint{on("n1", 1, spec.Ready), on("n1", 2, spec.Ready), on("n2", 3, spec.Ready)}},
		"b": {endpoints: []endpoint{on("n1", 1, spec.Ready), on("n2", 4, spec.Terminating), on("n3", 5, spec.Terminating)}},
	}}}
	for node, want := range map[string]int{"n1": 2, "n2": 1, "n3": 0, "n4": 0} {
		if got := all.readyOn(web, node); got != want {
			t.Errorf("%s: %d endpoints, want %d", node, got, want)
		}
	}
}

// sendTo sends a request to a port, whose response has to begin in time.
func sendTo(t *testing.T, address, request string, timeout time.Duration) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, request)
	if err := errors.Join(err, conn.SetReadDeadline(time.Now().Add(timeout))); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Clients that never finish a request, neither its header nor its body, don't keep others
// out: their connections end.
func TestHealthPortRequestTimeout(t *testing.T) {
	h := &healthPorts{log: slog.New(slog.DiscardHandler), servers: map[uint16]*healthServer{}}
	defer h.close()
	_, address := serveFree(t, h, HealthPort{Local: 1})
	for _, request := range []string{
		"GET / HTTP/1.1\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
		"GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 12<<10),
	} {
		if _, err := io.Copy(io.Discard, sendTo(t, address, request, 20*time.Second)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q: connection not closed", request)
		}
	}
}

// Clients that keep their connections don't keep others out.
func TestHealthPortConnections(t *testing.T) {
	h := &healthPorts{log: slog.New(slog.DiscardHandler), servers: map[uint16]*healthServer{}}
	defer h.close()
	_, address := serveFree(t, h, HealthPort{Local: 1})
	for i := range healthPortConnections + 1 {
		conn := sendTo(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 10*time.Second)
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("no answer to client %d: %v", i+1, err)
		}
	}
}

// A delivered change is in the state, though nothing else happens then.
func TestStateOfChange(t *testing.T) {
	s, err := Open(Options{Config: Config{Node: "lb1"}, API: &rest.Config{Host: "http://192.0.2.1"}, StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.checks.close()
	if err := s.deliver(Change{Update: source.Update{Whole: true}}, func(source.Update) error { return nil }); err != nil || s.State().Synced.IsZero() {
		t.Errorf("%v, the state is %+v", err, s.State())
	}
}
