// SPDX-License-Identifier: Apache-2.0

// Package httpd is the HTTP server behind everything that an agent listens on:
// the control socket, and the address for people and scrapers.
//
// Whoever connects is taken for somebody who may want to do harm. A request has
// little time and little room; connections are bounded, and it is the one that
// was silent for longest that makes room for a new one, so that those who only
// hold connections can't keep out those who ask.
package httpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// What a client may take of a server.
const (
	// requestTimeout is for a request to arrive, its body included; answerTimeout
	// for its answer to be taken off, counted from the end of its header.
	requestTimeout = 5 * time.Second
	answerTimeout  = 15 * time.Second
	idleTimeout    = time.Minute
	// maxHeaderBytes is for the request line and all headers together. net/http
	// adds 4 KiB of its own.
	maxHeaderBytes = 8 << 10
	// shutdownGrace is how long requests may take to end.
	shutdownGrace = 2 * time.Second
)

// Server answers on one listener.
type Server struct {
	// Name says in errors which listener it is.
	Name    string
	Handler http.Handler
	// Connections is the largest number of connections at once.
	Connections int
	Log         *slog.Logger
}

// Serve answers on the listener, which it closes, until ctx ends. Requests get a
// moment to end then; the error is that of a listener that broke before.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       remember,
		ErrorLog:          slog.NewLogLogger(s.Log.With("listener", s.Name).Handler(), slog.LevelWarn),
		// Without this "OPTIONS *" would be answered past the handler.
		DisableGeneralOptionsHandler: true,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(newCrowd(listener, s.Connections)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("%s: %w", s.Name, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// handler notes that a connection has a request. A semicolon in a query is a
// separator: net/http would log each one otherwise, as often as a client likes.
func (s *Server) handler() http.Handler {
	return http.AllowQuerySemicolons(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connOf(r.Context()).heard()
		s.Handler.ServeHTTP(w, r)
	}))
}
