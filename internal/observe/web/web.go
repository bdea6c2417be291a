// SPDX-License-Identifier: Apache-2.0

// Package web shows an agent over HTTP: a status page, the data behind it as JSON,
// metrics, and whether the agent is alive and ready. The agent serves it.
//
// There is no authentication unless Config has it: everyone who reaches the address can read
// everything, and nothing can be changed. All answers come from the observer's latest snapshot,
// so that the data plane's load doesn't depend on the number of requests.
package web

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/observe"
)

// HealthPath and ReadyPath answer probes: whether the agent is alive, and should get traffic.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// Config has the sources of a Server.
type Config struct {
	Observer *observe.Observer
	// Ready returns why the agent should get no traffic, nil if it should.
	Ready func() error
	// Metrics are the collectors of the agent's parts, which /metrics has too.
	Metrics []prometheus.Collector
	// Admit, if it isn't nil, lets only some requests reach a handler.
	Admit func(http.Handler) http.Handler
	Log   *slog.Logger
}

// Server answers people and scrapers.
type Server struct{ Config }

// New returns a server.
func New(c Config) *Server { return &Server{c} }

// Listen listens on the address of the status page, over TLS unless that is nil; nil is no
// page. An address that was chosen has to be free. The default one may be taken: forwarding
// takes priority.
func Listen(address netip.AddrPort, chosen bool, secure *tls.Config, log *slog.Logger) (net.Listener, error) {
	if !address.IsValid() {
		return nil, nil
	}
	listener, err := net.Listen("tcp", address.String())
	if err == nil {
		scheme := "http"
		if secure != nil {
			scheme, listener = "https", tls.NewListener(listener, secure)
		}
		log.Info("status page", "url", scheme+"://"+listener.Addr().String()+"/")
		return listener, nil
	}
	if cause, ok := errors.AsType[*net.OpError](err); ok {
		err = cause.Err // the rest repeats the address
	}
	if chosen {
		return nil, fmt.Errorf("observe.listen %s: %w", address, err)
	}
	log.Warn("no status page and no metrics: set observe.listen", "address", address.String(), "error", err)
	return nil, nil
}

// Address is the address of the status page; empty without one.
func Address(page net.Listener) string {
	if page == nil {
		return ""
	}
	return page.Addr().String()
}

// Serve answers on the listener, which it closes, until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	handler := s.handler()
	if s.Admit != nil {
		handler = s.Admit(handler)
	}
	return httpd.ServePage(ctx, listener, handler, s.Log)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	httpd.HandleStyle(mux)
	httpd.HandleAssets(mux, files)
	answer := httpd.JSON{Log: s.Log}.Handler
	mux.HandleFunc("/api/v1/status", answer(s.status))
	mux.HandleFunc("/api/v1/services", answer(s.services))
	mux.HandleFunc("/api/v1/backends", answer(s.backends))
	mux.HandleFunc("/api/v1/routes", answer(s.routes))
	mux.HandleFunc("/api/v1/history", answer(s.history))
	mux.HandleFunc("/api/v1/events", answer(s.events))
	mux.HandleFunc("/api/v1/page", answer(s.page))
	mux.Handle("/metrics", metricsHandler(s.Log, append(s.Metrics, agentMetrics(s.Observer))...))
	mux.HandleFunc(HealthPath, check(s.Observer.Alive))
	mux.HandleFunc(ReadyPath, check(s.Ready))
	return mux
}

// check answers with the result of wrong: 200 and "ok" without an error, or 503 and the
// error's text, one reason a line.
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
	return httpd.ServePage(ctx, listener, mux, log)
}

// The page has no build step and loads nothing from other origins.
//
//go:embed assets
var files embed.FS
