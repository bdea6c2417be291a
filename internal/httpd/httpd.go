// SPDX-License-Identifier: Apache-2.0

// Package httpd is the HTTP server of the control socket, the status page, the metrics and
// the API for clouds, and has the style that pages share. Clients are untrusted: the time and the size of requests, and the
// number of connections, are limited.
package httpd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// requestTimeout is for reading a request, its body included; answerTimeout for
	// writing the response, counted from the end of the request's header.
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
	// Connections is the largest number of connections at once; others wait. While it is
	// reached, each connection ends with its response, and idle ones are closed.
	Connections int
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	Log *slog.Logger
}

// Serve answers on the listener, which it closes, until ctx ends. Requests get a
// moment to end then; the error is from a listener that broke before.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           http.AllowQuerySemicolons(s.Handler), // net/http would log each semicolon
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(withoutHandshakes{s.Log.With("listener", s.Name).Handler()}, slog.LevelWarn),
		// Without this "OPTIONS *" would bypass the handler.
		DisableGeneralOptionsHandler: true,
	}
	server.ConnState = s.limitIdle(server.SetKeepAlivesEnabled)
	limited := netutil.LimitListener(listener, s.Connections)
	if s.TLS != nil {
		limited = tls.NewListener(limited, s.TLS)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(limited) }()
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

// withoutHandshakes drops messages about failed TLS handshakes: strangers can make many fail.
type withoutHandshakes struct{ slog.Handler }

// Handle implements slog.Handler.
func (h withoutHandshakes) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// limitIdle returns a hook that disables keep-alives, which closes idle connections, while all
// connections are in use.
func (s *Server) limitIdle(setKeepAlives func(bool)) func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	open := 0
	return func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			open++
		case http.StateClosed, http.StateHijacked:
			open--
		default:
			return
		}
		setKeepAlives(open < s.Connections)
	}
}

// requestError is an error with the status code of its response.
type requestError struct {
	status int
	error
}

// Errorf returns an error that JSON answers with a status code.
func Errorf(status int, format string, args ...any) error {
	return requestError{status, fmt.Errorf(format, args...)}
}

// JSON answers requests with JSON, and errors as text.
type JSON struct {
	Log *slog.Logger
	// Indent is for answers that people read.
	Indent bool
}

// Handler responds with read's result; without a body if that is nil. An error that
// Errorf didn't make is the server's.
func (j JSON) Handler(read func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		shown, err := read(w, r)
		if err == nil && shown == nil {
			return
		}
		var body bytes.Buffer
		if err == nil {
			encoder := json.NewEncoder(&body)
			if j.Indent {
				encoder.SetIndent("", "  ")
			}
			err = encoder.Encode(shown)
		}
		if err != nil {
			status := http.StatusInternalServerError
			if known, ok := errors.AsType[requestError](err); ok {
				status = known.status
			}
			http.Error(w, err.Error(), status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(body.Bytes()); err != nil {
			j.Log.Debug("client left", slog.Any("error", err))
		}
	}
}
