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

	"golang.org/x/net/netutil"
)

// HealthPort is the spec.healthCheckNodePort of a Service with traffic policy Local, which
// other load balancers use to find nodes with endpoints.
type HealthPort struct {
	Object
	Port uint16
	// Local counts the ready endpoints on this node.
	Local int
}

// HealthPorts returns the health ports of this node, by port.
func (w *Cache) HealthPorts() map[uint16]HealthPort {
	ports := make(map[uint16]HealthPort, len(w.healthPorts))
	for _, p := range w.healthPorts {
		ports[p.Port] = p
	}
	return ports
}

// healthPorts serves health check ports that no other process serves: where kube-proxy runs it
// serves them.
type healthPorts struct {
	log *slog.Logger

	mu      sync.Mutex
	wanted  map[uint16]HealthPort
	servers map[uint16]*healthServer
	// retry retries ports in use; nil if there are none.
	retry  *time.Timer
	closed bool
}

const (
	// healthPortRetry is the delay between attempts to listen at a port in use.
	healthPortRetry = 30 * time.Second
	// healthPortConnections bounds the connections of one port.
	healthPortConnections = 64
	// healthPortHeader bounds the header of a request, in bytes; net/http adds 4 KiB.
	healthPortHeader = 4 << 10
)

// healthServer serves one port.
type healthServer struct {
	http  *http.Server
	state atomic.Pointer[HealthPort]
}

// set sets the ports to serve.
func (h *healthPorts) set(ports map[uint16]HealthPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(h.wanted, ports) {
		return
	}
	h.wanted = ports
	h.serve()
}

// serve starts missing servers and stops others. It is called with the lock held.
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
	inUse := false
	for port, state := range h.wanted {
		s := h.servers[port]
		if s == nil {
			if !h.open(port, &state) {
				inUse = true
			}
			continue
		}
		s.state.Store(&state)
	}
	if inUse && h.retry == nil {
		h.retry = time.AfterFunc(healthPortRetry, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.retry = nil
			h.serve()
		})
	}
}

// open starts serving a port, unless it is in use.
func (h *healthPorts) open(port uint16, state *HealthPort) bool {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		h.log.Debug("health check port not served", "port", port, "error", err)
		return false
	}
	listener = netutil.LimitListener(listener, healthPortConnections)
	s := &healthServer{}
	s.state.Store(state)
	s.http = &http.Server{
		Handler: s, ReadTimeout: time.Second, WriteTimeout: time.Second, MaxHeaderBytes: healthPortHeader,
	}
	s.http.SetKeepAlivesEnabled(false) // idle connections would keep others out
	h.servers[port] = s
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("health check port failed", "port", port, "error", err)
		}
	}()
	return true
}

// close stops all servers.
func (h *healthPorts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retry != nil {
		h.retry.Stop()
	}
	h.closed = true
	h.serve()
}

// ServeHTTP responds like kube-proxy (its healthcheck/service_health.go): 200 if the node has
// ready endpoints, else 503.
func (s *healthServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	state := s.state.Load()
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
	_ = json.NewEncoder(w).Encode(answer) // the client may have closed the connection
}
