// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/httpd"
)

// Reflector shows a route reflector over HTTP: status and routes as JSON,
// metrics, and whether it lives and is ready. It has no page.
type Reflector struct {
	Reflector observe.Reflector
	// Metrics answers at /metrics.
	Metrics http.Handler
	Log     *slog.Logger
}

// Serve answers on the listener, which it closes, until ctx ends.
func (r *Reflector) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Log, r.Reflector.Status()) })
	mux.HandleFunc("/api/v1/routes", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Log, r.Reflector.Shown()) })
	mux.Handle("/metrics", r.Metrics)
	mux.HandleFunc("/healthz", check(func() error { return nil })) // that it answers is all there is to it
	mux.HandleFunc("/readyz", check(r.Reflector.Ready))
	server := &httpd.Server{
		Name: "status page", Handler: guard(mux, isLoopback(listener.Addr())), Connections: connections, Log: r.Log,
	}
	return server.Serve(ctx, listener)
}
