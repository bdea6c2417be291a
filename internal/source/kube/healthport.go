// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// HealthPort is the spec.healthCheckNodePort of a Service with traffic policy
// Local, by which other load balancers find the nodes that have endpoints.
type HealthPort struct {
	Object
	Port uint16
	// Local counts the ready endpoints on this node.
	Local int
}

// healthPort returns that of a Service, if it has one and is served here.
func (t *translation) healthPort(id Object, here bool) (p HealthPort, has bool) {
	svc := t.World.services[id]
	if svc == nil || !here || svc.Spec.HealthCheckNodePort < 1 || svc.Spec.HealthCheckNodePort > 65535 {
		return p, false
	}
	local := map[string]bool{}
	for _, s := range t.slices[id] {
		for i := range s.endpoints {
			if e := &s.endpoints[i]; e.condition == ready && e.node == t.self {
				local[e.address.String()] = true
			}
		}
	}
	return HealthPort{Object: id, Port: uint16(svc.Spec.HealthCheckNodePort), Local: len(local)}, true
}

// HealthPorts are those that this node is to answer at, by port.
func (w *World) HealthPorts() map[uint16]HealthPort {
	ports := make(map[uint16]HealthPort, len(w.healthPorts))
	for _, p := range w.healthPorts {
		ports[p.Port] = p
	}
	return ports
}

// healthPorts answers at health check ports, where nobody else does: kube-proxy has
// them wherever it runs.
type healthPorts struct {
	log *slog.Logger

	mu      sync.Mutex
	wanted  map[uint16]HealthPort
	servers map[uint16]*healthServer
	// again is when ports that others have are tried once more; nil if none is.
	again  *time.Timer
	closed bool
}

// healthPortPause is how long a port that somebody else has is left alone.
const healthPortPause = 30 * time.Second

func newHealthPorts(log *slog.Logger) *healthPorts {
	return &healthPorts{log: log, servers: map[uint16]*healthServer{}}
}

// healthServer answers at one port.
type healthServer struct {
	http  *http.Server
	state atomic.Pointer[HealthPort]
}

// set makes ports those at which there is an answer.
func (h *healthPorts) set(ports map[uint16]HealthPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(h.wanted, ports) {
		return
	}
	h.wanted = ports
	h.serve()
}

// serve opens what is missing and closes what isn't wanted. It is called with the
// lock held.
func (h *healthPorts) serve() {
	for port, s := range h.servers {
		if _, wanted := h.wanted[port]; !wanted || h.closed {
			_ = s.http.Close()
			delete(h.servers, port)
		}
	}
	if h.closed {
		return
	}
	taken := false
	for port, state := range h.wanted {
		s := h.servers[port]
		if s == nil {
			if s = h.open(port); s == nil {
				taken = true
				continue
			}
		}
		s.state.Store(&state)
	}
	if taken && h.again == nil {
		h.again = time.AfterFunc(healthPortPause, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.again = nil
			h.serve()
		})
	}
}

// open begins to answer at a port; nil if somebody else has it.
func (h *healthPorts) open(port uint16) *healthServer {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		h.log.Debug("health check port not served", "port", port, "error", err)
		return nil
	}
	s := &healthServer{}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Second, IdleTimeout: time.Minute}
	h.servers[port] = s
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("health check port lost", "port", port, "error", err)
		}
	}()
	return s
}

// close ends all answers.
func (h *healthPorts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.again != nil {
		h.again.Stop()
	}
	h.closed = true
	h.serve()
}

// ServeHTTP answers as kube-proxy does (its healthcheck/service_health.go): 200 if
// the node has ready endpoints, else 503.
func (s *healthServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	state := s.state.Load()
	if state == nil {
		http.Error(w, "not known yet", http.StatusServiceUnavailable)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(state.Local))
	if state.Local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	answer := struct {
		Service struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
		LocalEndpoints      int  `json:"localEndpoints"`
		ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
	}{LocalEndpoints: state.Local, ServiceProxyHealthy: true}
	answer.Service.Namespace, answer.Service.Name = state.Namespace, state.Name
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs none
}
