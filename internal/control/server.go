// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
)

// The API's paths. Lists take ?service=NAME, those that may be long ?limit=N too.
const (
	statusPath   = "/v1/status"
	servicesPath = "/v1/services"
	backendsPath = "/v1/backends"
	reloadPath   = "/v1/reload"
	tracePath    = "/v1/trace"
	flowsPath    = "/v1/flows"
	topPath      = "/v1/top"
	routesPath   = "/v1/routes"
	drainPath    = "/v1/drain"
	undrainPath  = "/v1/undrain"
	drainsPath   = "/v1/drains"
)

// Bounds of requests.
const (
	// connections is how many may be open at once. Each command has one.
	connections = 64
	// MaxTracePackets is how many packets one request can have.
	MaxTracePackets = 64
	maxTraceBytes   = 8 << 20
	// maxDrainBytes is more than any name and address take.
	maxDrainBytes = 4 << 10
	// maxRows bounds an answer, about 250 bytes a flow.
	maxRows = 100_000
)

// Agent carries out requests. Its methods may be called from several goroutines.
type Agent interface {
	dataplane.Tracer
	dataplane.FlowLister
	// Drain and Undrain take a target out of service and back; they return when the
	// data plane and the routes follow, or why the target can't be drained.
	Drain(ctx context.Context, target store.Target) error
	Undrain(ctx context.Context, target store.Target) error
	// Reload reads the configuration again and returns why it was refused.
	Reload(ctx context.Context) error
}

// server answers on an agent's control socket: HTTP, JSON out, errors as text.
type server struct {
	agent    Agent
	observer *observe.Observer
	json     httpd.JSON
}

// Serve shows an agent on a listener, which it closes, and carries out requests
// until ctx ends.
func Serve(ctx context.Context, listener net.Listener, agent Agent, observer *observe.Observer, log *slog.Logger) error {
	s := &server{agent: agent, observer: observer, json: httpd.JSON{Log: log, Indent: true}}
	return serve(ctx, listener, s.handler(), log)
}

// ServeReflector shows a route reflector as Serve does an agent: its status and
// routes, and reload.
func ServeReflector(ctx context.Context, listener net.Listener, r observe.Reflector, reload func() error, log *slog.Logger) error {
	answer := httpd.JSON{Log: log, Indent: true}.Handler
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, answer(func(http.ResponseWriter, *http.Request) (any, error) { return r.Status(), nil }))
	mux.HandleFunc("GET "+routesPath, answer(func(http.ResponseWriter, *http.Request) (any, error) { return r.Shown(), nil }))
	mux.HandleFunc("POST "+reloadPath, answer(func(http.ResponseWriter, *http.Request) (any, error) { return nil, refused(reload()) }))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("%s: this is a route reflector, which has status and routes only", r.URL.Path), http.StatusNotFound)
	})
	return serve(ctx, listener, mux, log)
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	s := &httpd.Server{Name: "control socket", Handler: handler, Connections: connections, Log: log}
	return s.Serve(ctx, listener)
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, s.show(func(_ *http.Request, now *observe.Snapshot) (any, error) {
		return now.Status(), nil
	}))
	mux.HandleFunc("GET "+servicesPath, s.show(func(r *http.Request, now *observe.Snapshot) (any, error) {
		return only(now.Services(), r, func(s observe.Service) string { return s.Name })
	}))
	mux.HandleFunc("GET "+backendsPath, s.show(func(r *http.Request, now *observe.Snapshot) (any, error) {
		return only(now.AllBackends(), r, func(b observe.Backend) string { return b.Service })
	}))
	mux.HandleFunc("GET "+topPath, s.show(func(r *http.Request, now *observe.Snapshot) (any, error) {
		limit, err := limitOf(r)
		if err != nil {
			return nil, err
		}
		return now.Top(limit), nil
	}))
	mux.HandleFunc("GET "+flowsPath, s.show(s.flows))
	mux.HandleFunc("GET "+drainsPath, s.show(func(r *http.Request, now *observe.Snapshot) (any, error) {
		flows, err := s.agent.CountFlows(r.Context())
		if err != nil {
			return nil, err
		}
		return now.Drains(flows), nil
	}))
	mux.HandleFunc("GET "+routesPath, s.json.Handler(func(http.ResponseWriter, *http.Request) (any, error) {
		return s.observer.Routes(), nil
	}))
	mux.HandleFunc("POST "+tracePath, s.json.Handler(s.traces)) // changes nothing, but packets need a body
	mux.HandleFunc("POST "+drainPath, s.drains(s.agent.Drain))
	mux.HandleFunc("POST "+undrainPath, s.drains(s.agent.Undrain))
	mux.HandleFunc("POST "+reloadPath, s.json.Handler(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, refused(s.agent.Reload(r.Context()))
	}))
	return mux
}

// refused is the error of a change that wasn't made.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return httpd.Errorf(http.StatusUnprocessableEntity, "%w", err)
}

// show returns a handler whose response is made from a new snapshot.
func (s *server) show(what func(*http.Request, *observe.Snapshot) (any, error)) http.HandlerFunc {
	return s.json.Handler(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		now, err := s.observer.Read(r.Context())
		if err != nil {
			return nil, err
		}
		return what(r, now)
	})
}

// only keeps the elements of the service that the request names.
func only[T any](list []T, r *http.Request, service func(T) string) ([]T, error) {
	wanted := r.URL.Query().Get("service")
	if wanted == "" {
		return list, nil
	}
	list = slices.DeleteFunc(slices.Clone(list), func(element T) bool { return service(element) != wanted })
	if len(list) == 0 {
		return nil, httpd.Errorf(http.StatusNotFound, "service %q: not here, or without backends", wanted)
	}
	return list, nil
}

// limitOf is how many elements the request wants, at most maxRows.
func limitOf(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return maxRows, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxRows {
		return 0, httpd.Errorf(http.StatusBadRequest, "limit %q: want 1 to %d", text, maxRows)
	}
	return limit, nil
}

func (s *server) flows(r *http.Request, now *observe.Snapshot) (any, error) {
	values := r.URL.Query()
	var query dataplane.FlowQuery
	var err error
	if name := values.Get("service"); name != "" {
		vip, found := now.VIP(name)
		if !found {
			return nil, httpd.Errorf(http.StatusBadRequest, "service %q: not here", name)
		}
		query.VIP = vip
	}
	if text := values.Get("client"); text != "" {
		if query.Client, err = netip.ParsePrefix(text); err != nil {
			return nil, httpd.Errorf(http.StatusBadRequest, "%w", err)
		}
	}
	if query.Limit, err = limitOf(r); err != nil {
		return nil, err
	}
	found, err := s.agent.Flows(r.Context(), query)
	if err != nil {
		return nil, err
	}
	return now.Flows(found), nil
}

// traceRequest is the body of a request for traces.
type traceRequest struct {
	Packets []dataplane.Packet `json:"packets"`
}

// traces answers with a list of observe.Trace, one for each packet.
func (s *server) traces(w http.ResponseWriter, r *http.Request) (any, error) {
	var request traceRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxTraceBytes)).Decode(&request); err != nil {
		return nil, httpd.Errorf(http.StatusBadRequest, "packets: %w", err)
	}
	if len(request.Packets) > MaxTracePackets {
		return nil, httpd.Errorf(http.StatusBadRequest, "%d packets are too many: want at most %d", len(request.Packets), MaxTracePackets)
	}
	traces := make([]observe.Trace, len(request.Packets))
	for i, packet := range request.Packets {
		traced, err := s.agent.Trace(r.Context(), packet)
		if err != nil {
			traces[i].Error = err.Error()
			continue
		}
		traces[i] = s.observer.Explain(traced)
	}
	return traces, nil
}

// drains answers a request to drain, or undrain, a target.
func (s *server) drains(do func(context.Context, store.Target) error) http.HandlerFunc {
	return s.json.Handler(func(w http.ResponseWriter, r *http.Request) (any, error) {
		var target store.Target
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDrainBytes))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&target); err != nil {
			return nil, httpd.Errorf(http.StatusBadRequest, "target: %w", err)
		}
		// Routers may take longer to follow than any other answer takes.
		response := http.NewResponseController(w)
		if err := errors.Join(response.SetReadDeadline(time.Time{}), response.SetWriteDeadline(time.Time{})); err != nil {
			return nil, err
		}
		return nil, refused(do(r.Context(), target))
	})
}

// ReloadOnHangup reloads on SIGHUP until ctx ends. A file that is refused is
// logged by its source.
func ReloadOnHangup(ctx context.Context, reload func() error) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			_ = reload()
		case <-ctx.Done():
			return
		}
	}
}
