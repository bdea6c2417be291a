// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Responses are those of kube-proxy; a port in use is skipped.
func TestHealthPorts(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := func(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }
	_, number, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	web := Object{Kind: KindService, Namespace: "default", Name: "web"}
	h := &healthPorts{log: slog.New(slog.DiscardHandler), servers: map[uint16]*healthServer{}}
	defer h.close()
	for local, want := range []string{
		`503 {"service":{"namespace":"default","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`,
		`200 {"service":{"namespace":"default","name":"web"},"localEndpoints":1,"serviceProxyHealthy":true}`,
	} {
		h.set(map[uint16]HealthPort{port(free): {web, port(free), local}, port(taken): {web, port(taken), local}})
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+number, http.NoBody)
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
	if _, err := net.Dial("tcp", "127.0.0.1:"+number); err == nil {
		t.Error("a port is served that no Service wants")
	}
}

// Clients that never finish a request, neither its header nor its body, don't keep others
// out: their connections end.
func TestHealthPortEndsSlowRequests(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	h := &healthPorts{log: slog.New(slog.DiscardHandler), servers: map[uint16]*healthServer{}}
	defer h.close()
	h.set(map[uint16]HealthPort{uint16(address.Port): {Local: 1}})
	for _, request := range []string{
		"GET / HTTP/1.1\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
		"GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 12<<10),
	} {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, request)
		if err == nil {
			err = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q: connection not closed", request)
		}
	}
}

// Clients that keep their connections don't keep others out.
func TestHealthPortClosesConnections(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	h := &healthPorts{log: slog.New(slog.DiscardHandler), servers: map[uint16]*healthServer{}}
	defer h.close()
	h.set(map[uint16]HealthPort{uint16(address.Port): {Local: 1}})
	for i := range healthPortConnections + 1 {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if err == nil {
			err = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("no answer to client %d: %v", i+1, err)
		}
	}
}
