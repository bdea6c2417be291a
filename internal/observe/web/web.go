// SPDX-License-Identifier: Apache-2.0

// Package web shows an agent to people and to scrapers over HTTP: a status page,
// the data behind it as JSON, metrics, and whether the agent lives and is ready.
//
// It stands beside the control socket at the end of the story of ARCHITECTURE.md.
// Unlike there, nobody proves who they are: everything can be read by whoever
// reaches the address, and nothing can be changed. All that is answered comes
// from the observer's latest reading, so that many questions cost the data plane
// no more than few.
package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/httpd"
)

const (
	// connections is how many may be open at once, maxStreams how many of them may
	// be somebody's live view.
	connections = 128
	maxStreams  = 32
)

// Config is what a Server shows.
type Config struct {
	Observer *observe.Observer
	// Alive returns what hangs in the agent, nil if nothing does; Ready why it
	// should get no traffic, nil if it should.
	Alive, Ready func() error
	// Metrics answers at /metrics.
	Metrics http.Handler
	Log     *slog.Logger
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
	server := &httpd.Server{
		Name:        "status page",
		Handler:     s.handler(isLoopback(listener.Addr())),
		Connections: connections,
		Log:         s.Log,
	}
	return server.Serve(ctx, listener)
}

func (s *Server) handler(local bool) http.Handler {
	mux := http.NewServeMux()
	for path, asset := range assets() {
		mux.Handle(path, asset)
	}
	mux.HandleFunc("/api/v1/status", s.status)
	mux.HandleFunc("/api/v1/services", s.services)
	mux.HandleFunc("/api/v1/backends", s.backends)
	mux.HandleFunc("/api/v1/routes", s.routes)
	mux.HandleFunc("/api/v1/history", s.history)
	mux.HandleFunc("/api/v1/events", s.events)
	mux.HandleFunc("/api/v1/stream", s.stream)
	mux.Handle("/metrics", s.Metrics)
	mux.HandleFunc("/healthz", check(s.Alive))
	mux.HandleFunc("/readyz", check(s.Ready))
	return guard(mux, local)
}

// say answers with a line of text.
func say(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n") // a client that left needs no answer
}

// check answers whether something finds nothing wrong: 200 and "ok", or 503 and
// what it found, one reason a line.
func check(wrong func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := wrong(); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		say(w, http.StatusOK, "ok")
	}
}

// reject is say with the reason why a request was refused.
func reject(w http.ResponseWriter, status int, format string, args ...any) {
	say(w, status, fmt.Sprintf(format, args...))
}
