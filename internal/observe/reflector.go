// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe/httpd"
)

// RoleReflector is Status.Role of a route reflector.
const RoleReflector = "reflector"

// Reflector is what a ReflectorServer shows. All fields are set; the functions
// may be called from several goroutines.
type Reflector struct {
	Version, Commit, Name string
	Started               time.Time
	// Listen is the address of the metrics; empty without one.
	Listen string
	// Config tells how the last reading of the configuration ended.
	Config func() Config
	// Routes tells what is passed on, and how clients and routers are.
	Routes func() Routes
	// Begun says that routers are told what there is: clients of an earlier life of
	// the reflector have been waited for.
	Begun func() bool
	// Refused counts connections of strangers.
	Refused func() uint64
	// Reload reads the configuration again and returns why it was refused.
	Reload func() error
}

// Ready returns why routers don't know what clients announce; nil if one does.
func (r *Reflector) Ready() error {
	if !r.Begun() {
		return errors.New("clients of an earlier life are waited for")
	}
	for _, p := range r.Routes().Peers {
		if !p.Dynamic && p.State == bgp.Established {
			return nil
		}
	}
	return errors.New("no router: no session is established")
}

// Shown is Routes with no list missing.
func (r *Reflector) Shown() Routes { return r.Routes().complete() }

// Status is the reflector as a whole, in the words of an agent.
func (r *Reflector) Status() Status {
	return Status{
		Role: RoleReflector, Version: r.Version, Commit: r.Commit, Node: r.Name, PID: os.Getpid(),
		Started: r.Started, Listen: r.Listen, Config: r.Config(), BGP: r.Routes().counts(),
		DataPlane: DataPlane{Attachments: []Attachment{}}, Exits: []Exit{},
	}
}

// ReflectorServer answers on a reflector's control socket, as Server does on an
// agent's: its status and routes, and to reload.
type ReflectorServer struct {
	reflector Reflector
	log       *slog.Logger
}

// NewReflectorServer returns a server that shows a reflector.
func NewReflectorServer(reflector Reflector, log *slog.Logger) *ReflectorServer {
	return &ReflectorServer{reflector: reflector, log: log}
}

// Serve answers on the listener, which it closes, until ctx ends.
func (s *ReflectorServer) Serve(ctx context.Context, listener net.Listener) error {
	server := &httpd.Server{Name: "control socket", Handler: s.handler(), Connections: connections, Log: s.log}
	return server.Serve(ctx, listener)
}

func (s *ReflectorServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.log, s.reflector.Status())
	})
	mux.HandleFunc("GET "+routesPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.log, s.reflector.Shown())
	})
	mux.HandleFunc("POST "+reloadPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := s.reflector.Reload(); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("%s: this is a route reflector, which has status and routes only", r.URL.Path), http.StatusNotFound)
	})
	return mux
}
