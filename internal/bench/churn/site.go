// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/bench/client"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/netlab/operator"
	"fairlead.io/fairlead/internal/observe"
)

const (
	balancers = 3
	servers   = 12
	// idleTimeout is longer than any client is silent, and short enough for a
	// change to be forgotten within a run.
	idleTimeout = 15 * time.Second
	// learn is longer than UDP clients are silent.
	learn = 2 * client.DatagramPace
)

// ports of the VIPs: one address with several services.
func ports() []uint16 { return []uint16{7, 7007} }

// service is a VIP's address and port with its servers, balanced for TCP and UDP
// alike.
type service struct {
	vip      netip.AddrPort
	tracking lb.Tracking
	// names and addresses of the servers, and their weights as configured.
	names     []string
	addresses []netip.Addr
	weights   weights
	presence  *client.Presence
	// check is how the servers are probed; nil: they are not.
	check *lb.HealthCheck
}

// configured are the service's two halves.
func (s *service) configured() []lb.Service {
	var backends []lb.Backend
	for n, weight := range s.weights {
		if weight != absent {
			backends = append(backends, lb.Backend{Address: s.addresses[n], Port: s.vip.Port(), Weight: weight})
		}
	}
	var both []lb.Service
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		service := lb.Service{
			Name:        fmt.Sprintf("%s/%s", protocol, s.vip),
			VIP:         lb.VIP{Address: s.vip.Addr(), Port: s.vip.Port(), Protocol: protocol},
			Forward:     lb.L2DSR,
			Tracking:    s.tracking,
			IdleTimeout: idleTimeout,
			MinHealthy:  1,
			Health:      s.check,
			Backends:    backends,
		}
		if protocol == lb.UDP {
			service.Learn = learn
		}
		both = append(both, service)
	}
	return both
}

// site is a lab whose balancers are reconfigured while it is used.
type site struct {
	*netlab.Lab
	topology netlab.Topology
	// balancers are the hosts that still balance.
	balancers []string
	services  []*service
	deaths    client.Deaths
}

// draw makes the topology: "ecmp" with echo servers only. All servers are in use
// at first.
func draw(fairlead string, tracking lb.Tracking) (*site, error) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{
		Fairlead: fairlead, Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: netlab.FRR,
	})
	if err != nil {
		return nil, err
	}
	s := &site{}
	for i, old := range topology.Services {
		if old.Protocol != lb.UDP {
			continue
		}
		for _, port := range ports() {
			vip := netip.AddrPortFrom(old.Address, port)
			s.services = append(s.services, newService(vip, tracking, topology.Probes[i].Answers, old.Backends))
		}
	}
	topology.SetServices(s.configured())
	topology.Probes = nil
	for _, service := range s.services {
		topology.Probes = append(topology.Probes, netlab.Probe{
			From: "client", Protocol: lb.UDP, Address: service.vip, Answers: service.names,
		})
	}
	for i := range topology.Hosts {
		s.furnish(&topology.Hosts[i], fairlead)
	}
	s.topology = topology
	return s, nil
}

func newService(vip netip.AddrPort, tracking lb.Tracking, names []string, backends []lb.Backend) *service {
	s := &service{vip: vip, tracking: tracking, names: names, presence: client.NewPresence(names)}
	for _, b := range backends {
		s.addresses = append(s.addresses, b.Address)
		s.weights = append(s.weights, b.Weight)
	}
	return s
}

// furnish gives a host what it has to run or to balance.
func (s *site) furnish(h *netlab.Host, fairlead string) {
	switch h.Role {
	case netlab.Balancer:
		s.balancers = append(s.balancers, h.Name)
	case netlab.Server:
		args := []string{fairlead, "lab", "echo", "--name", h.Name}
		for _, service := range s.services {
			args = append(args, "--listen", service.vip.String())
		}
		h.Processes = []netlab.Process{{Name: "echo", Args: args}}
	default:
	}
}

func (s *site) configured() []lb.Service {
	var all []lb.Service
	for _, service := range s.services {
		all = append(all, service.configured()...)
	}
	return all
}

// targets are the services as clients see them.
func (s *site) targets() []client.Target {
	var all []client.Target
	for _, service := range s.services {
		all = append(all, client.Target{VIP: service.vip, Servers: service.presence})
	}
	return all
}

// configure gives all balancers the services as they are now and returns when
// they are programmed, or have failed.
func (s *site) configure(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	services, state := s.configured(), s.State()
	for _, name := range s.balancers {
		group.Go(func() error {
			return operator.Configure(ctx, state.Host(name), s.topology.Host(name).Agent.With(services))
		})
	}
	return group.Wait()
}

// probe has the balancers probe all servers, or stop to. It returns when they
// know all servers to live.
func (s *site) probe(ctx context.Context, check *lb.HealthCheck) error {
	for _, service := range s.services {
		service.check = check
	}
	if err := s.configure(ctx); err != nil || check == nil {
		return err
	}
	for _, name := range s.services[0].names {
		if err := s.await(ctx, name, observe.HealthHealthy); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error unless every balancer has all services as configured.
func (s *site) check(ctx context.Context) error {
	state := s.State()
	for _, name := range s.balancers {
		text, err := observe.Dial(state.Host(name).Socket).Services(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var services []observe.Service
		if err := json.Unmarshal(text, &services); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, service := range services {
			if !service.Programmed {
				return fmt.Errorf("%s: service %s is not programmed: %s", name, service.Name, service.Error)
			}
		}
	}
	return nil
}
