// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	balancers = 3
	servers   = 12
	// idleTimeout is longer than any client is silent, and short enough for entries to
	// expire within a run.
	idleTimeout = 15 * time.Second
	// learn is longer than UDP clients are silent.
	learn = 2 * bench.DatagramPace
)

// service is a VIP's address and port with its servers, for TCP and UDP.
type service struct {
	vip      netip.AddrPort
	tracking lb.Tracking
	// names, addresses and configured weights of the servers.
	names     []string
	addresses []netip.Addr
	weights   weights
	presence  *bench.Presence
	// check of the servers; nil: none.
	check *lb.HealthCheck
}

// configured are the services for TCP and UDP.
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

// testbed is a lab whose balancers are reconfigured under load.
type testbed struct {
	*netlab.Lab // nil: not built
	topology    netlab.Topology
	// kubeProxy is set if the balancers are nodes that forward as with kube-proxy.
	kubeProxy bool
	// balancers are the hosts that aren't lost, lost is the other one, if any.
	balancers []string
	lost      string
	services  []*service
	deaths    bench.Deaths
}

// newTestbed draws the topology: "ecmp" with echo servers only, all of them in use.
func newTestbed(tracking lb.Tracking, kubeProxy bool) (*testbed, error) {
	options := netlab.ECMPOptions{
		Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: netlab.FRR, EchoPorts: []uint16{7, 7007},
	}
	if kubeProxy {
		options.Forward = lb.NAT
	}
	topology, err := netlab.ECMP(options)
	if err != nil {
		return nil, err
	}
	t := &testbed{topology: topology, kubeProxy: kubeProxy}
	names := topology.Probes[0].Answers
	for _, old := range topology.Services {
		if old.Protocol != lb.UDP {
			continue
		}
		s := &service{
			vip: netip.AddrPortFrom(old.Address, old.Port), tracking: tracking, names: names, presence: bench.NewPresence(names),
		}
		for _, b := range old.Backends {
			s.addresses = append(s.addresses, b.Address)
			s.weights = append(s.weights, b.Weight)
		}
		t.services = append(t.services, s)
	}
	t.topology.SetServices(t.configured())
	for i := range topology.Hosts {
		if h := &topology.Hosts[i]; h.Role == netlab.Balancer {
			t.balancers = append(t.balancers, h.Name)
		}
	}
	if kubeProxy {
		t.topology.KubeProxy(t.configured())
	}
	return t, nil
}

func (t *testbed) configured() []lb.Service {
	var all []lb.Service
	for _, service := range t.services {
		all = append(all, service.configured()...)
	}
	return all
}

// targets are the services for clients.
func (t *testbed) targets() []bench.Destination {
	var all []bench.Destination
	for _, service := range t.services {
		all = append(all, bench.Destination{VIP: service.vip, Servers: service.presence})
	}
	return all
}

// configure configures the present services on all balancers and returns when they
// are programmed, or have failed.
func (t *testbed) configure(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	services, state := t.configured(), t.State()
	for _, name := range t.balancers {
		group.Go(func() error {
			if t.kubeProxy {
				return netlab.SyncKubeProxy(ctx, t.Lab, name, services)
			}
			return state.Host(name).Configure(ctx, t.topology.Host(name).Agent.With(services))
		})
	}
	return group.Wait()
}

// refused is the number of answers so far that came to nodes with kube-proxy after their flow was
// deleted; 0 with Fairlead.
func (t *testbed) refused() (n int, err error) {
	if !t.kubeProxy {
		return 0, nil
	}
	for _, node := range t.Hosts(netlab.Balancer) {
		answers, err := netlab.RefusedDatagrams(t.Lab, node.Name)
		if err != nil {
			return 0, err
		}
		n += answers
	}
	return n, nil
}

// check returns an error unless all services are programmed on all agents.
func (t *testbed) check(ctx context.Context) error {
	if t.kubeProxy {
		return nil
	}
	state := t.State()
	for _, name := range t.balancers {
		services, err := netlab.Decode[[]observe.Service](control.Dial(state.Host(name).Socket).Services(ctx))
		if err != nil {
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

// lossTimeout is how long the router may take to detect that a balancer is lost, or back:
// longer than any hold time.
const lossTimeout = 15 * time.Second

// loseBalancer cuts the link of the last balancer. It returns when the router
// doesn't use it any more.
func (t *testbed) loseBalancer(ctx context.Context) error {
	last := len(t.balancers) - 1
	t.balancers, t.lost = t.balancers[:last], t.balancers[last]
	if err := t.Cut(t.lost); err != nil {
		return err
	}
	return t.awaitRoutes(ctx)
}

// joinBalancer mends the link of the lost balancer and returns when the router
// uses it again.
func (t *testbed) joinBalancer(ctx context.Context) error {
	if err := t.Mend(t.lost); err != nil {
		return err
	}
	t.balancers = append(t.balancers, t.lost)
	return t.awaitRoutes(ctx)
}

// awaitRoutes waits until the router spreads the VIPs over exactly the balancers that
// aren't lost, and monitors them by BFD.
func (t *testbed) awaitRoutes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	for _, route := range t.topology.Learned {
		route.Via = t.balancers
		if err := t.AwaitRoute(ctx, route); err != nil {
			return err
		}
	}
	return netlab.Await(ctx, netlab.Poll, func() error { return t.checkBFD(ctx) })
}

// checkBFD returns an error unless the router has a session with each balancer that isn't lost.
func (t *testbed) checkBFD(ctx context.Context) error {
	text, err := t.Run(ctx, "router", "vtysh", "--vty_socket", t.State().Host("router").Directory, "-c", "show bfd peers json")
	if err != nil {
		return err
	}
	sessions, err := netlab.Decode[[]struct{ Status string }]([]byte(text), nil)
	up := 0
	for _, s := range sessions {
		if s.Status == "up" {
			up++
		}
	}
	if err == nil && up != len(t.balancers) {
		err = fmt.Errorf("%d sessions of BFD are up, want %d", up, len(t.balancers))
	}
	return err
}
