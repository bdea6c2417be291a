// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"fairlead.io/fairlead/internal/observe/httpd"
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

// connections is how many may be open at once. Each command has one.
const connections = 64

// Server answers on the control socket: HTTP, JSON out, errors as text.
type Server struct {
	observer *Observer
	agent    *Agent
	log      *slog.Logger
}

// NewServer returns a server that shows what is observed.
func NewServer(observer *Observer, log *slog.Logger) *Server {
	return &Server{observer: observer, agent: &observer.agent, log: log}
}

// Serve answers on the listener, which it closes, until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &httpd.Server{Name: "control socket", Handler: s.handler(), Connections: connections, Log: s.log}
	return server.Serve(ctx, listener)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, r *http.Request) {
		s.show(w, r, func(v view) (any, error) { return s.agent.status(v), nil })
	})
	mux.HandleFunc("GET "+servicesPath, func(w http.ResponseWriter, r *http.Request) {
		s.show(w, r, func(v view) (any, error) {
			return only(v.services(), r, func(s Service) string { return s.Name })
		})
	})
	mux.HandleFunc("GET "+backendsPath, func(w http.ResponseWriter, r *http.Request) {
		s.show(w, r, func(v view) (any, error) {
			return only(v.backends(), r, func(b Backend) string { return b.Service })
		})
	})
	mux.HandleFunc("GET "+topPath, s.top)
	mux.HandleFunc("GET "+flowsPath, s.flows)
	mux.HandleFunc("GET "+routesPath, func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, s.agent.routes())
	})
	mux.HandleFunc("GET "+drainsPath, s.drains)
	mux.HandleFunc("POST "+drainPath, s.change(func(r *http.Request, t DrainTarget) error {
		return s.agent.Drain(r.Context(), t)
	}))
	mux.HandleFunc("POST "+undrainPath, s.change(func(r *http.Request, t DrainTarget) error {
		return s.agent.Undrain(r.Context(), t)
	}))
	mux.HandleFunc("POST "+tracePath, s.traces) // changes nothing, but packets need a body
	mux.HandleFunc("POST "+reloadPath, func(w http.ResponseWriter, r *http.Request) {
		if err := s.agent.Reload(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
	return mux
}

// only keeps the elements of the service that the request asks for.
func only[T any](list []T, r *http.Request, service func(T) string) ([]T, error) {
	wanted := r.URL.Query().Get("service")
	if wanted == "" {
		return list, nil
	}
	list = slices.DeleteFunc(list, func(element T) bool { return service(element) != wanted })
	if len(list) == 0 {
		return nil, fmt.Errorf("service %q: not here, or without backends", wanted)
	}
	return list, nil
}

// show answers with what is made of a fresh view.
func (s *Server) show(w http.ResponseWriter, r *http.Request, what func(view) (any, error)) {
	v, err := s.agent.look(r.Context(), s.observer.sampler.latest())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	shown, err := what(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	s.answer(w, shown)
}

func (s *Server) answer(w http.ResponseWriter, shown any) { answer(w, s.log, shown) }

// answer writes JSON.
func answer(w http.ResponseWriter, log *slog.Logger, shown any) {
	body, err := json.MarshalIndent(shown, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(body, '\n')); err != nil {
		log.Debug("client left", slog.Any("error", err))
	}
}
