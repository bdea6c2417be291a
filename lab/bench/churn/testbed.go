// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
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
	*netlab.Lab
	topology netlab.Topology
	// balancers are the hosts that aren't lost, lost is the other one, if any.
	balancers []string
	lost      string
	services  []*service
	deaths    bench.Deaths
}

// newTestbed draws the topology: "ecmp" with echo servers only, all of them in use.
func newTestbed(tracking lb.Tracking) (*testbed, error) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{
		Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: netlab.FRR, EchoPorts: []uint16{7, 7007},
	})
	if err != nil {
		return nil, err
	}
	t := &testbed{topology: topology}
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
	for _, h := range topology.Hosts {
		if h.Role == netlab.Balancer {
			t.balancers = append(t.balancers, h.Name)
		}
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
			return state.Host(name).Configure(ctx, t.topology.Host(name).Agent.With(services))
		})
	}
	return group.Wait()
}

// setHealthCheck sets the check of all servers, nil for none, and returns when all
// balancers find all servers healthy.
func (t *testbed) setHealthCheck(ctx context.Context, check *lb.HealthCheck) error {
	for _, service := range t.services {
		service.check = check
	}
	if err := t.configure(ctx); err != nil || check == nil {
		return err
	}
	for _, name := range t.services[0].names {
		if err := t.await(ctx, name, observe.HealthHealthy); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error unless all services are programmed on all balancers.
func (t *testbed) check(ctx context.Context) error {
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

const (
	// failureInterval is the number of rounds of changes before a server is killed,
	// and before it is started again.
	failureInterval = 3
	// failureTimeout is how long balancers may take to detect either.
	failureTimeout = 15 * time.Second
)

// healthCheck detects a dead server in two seconds, on a machine that is busy with
// thousands of clients.
func healthCheck() *lb.HealthCheck {
	return &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2}
}

// failures kills servers and starts them again, one at a time.
type failures struct {
	testbed *testbed
	random  *rand.Rand
	// rounds counts rounds of changes; dead is the killed server, if any.
	rounds int
	dead   string
}

// round is called after each round of changes.
func (f *failures) round(ctx context.Context) error {
	f.rounds++
	switch {
	case f.rounds%failureInterval != 0:
		return nil
	case f.dead == "":
		return f.kill(ctx)
	}
	return f.revive(ctx)
}

// kill kills a server and waits until no balancer sends to it.
func (f *failures) kill(ctx context.Context) error {
	t := f.testbed
	names := t.services[0].names
	f.dead = names[f.random.IntN(len(names))]
	t.deaths.Begin(f.dead)
	for _, service := range t.services {
		service.presence.Leave(f.dead)
	}
	processes := t.State().Host(f.dead).Processes
	for _, p := range processes {
		if err := t.Kill(ctx, f.dead, p.Name); err != nil {
			return err
		}
	}
	if err := t.await(ctx, f.dead, observe.HealthUnhealthy); err != nil {
		return err
	}
	t.deaths.Notice()
	return nil
}

// revive starts the dead server again and waits until all balancers use it.
func (f *failures) revive(ctx context.Context) error {
	t := f.testbed
	for _, p := range t.topology.Host(f.dead).Processes {
		if err := t.Restart(ctx, f.dead, p.Name); err != nil {
			return err
		}
	}
	if err := t.await(ctx, f.dead, observe.HealthHealthy); err != nil {
		return err
	}
	t.deaths.End()
	for _, service := range t.services {
		if n := slices.Index(service.names, f.dead); service.weights[n] != absent {
			service.presence.Arrive(f.dead)
		}
	}
	f.dead = ""
	return nil
}

// end revives the dead server.
func (f *failures) end(ctx context.Context) error {
	if f.dead == "" {
		return nil
	}
	return f.revive(ctx)
}

// await waits until every balancer reports this state of a server in all services.
func (t *testbed) await(ctx context.Context, server string, state observe.HealthState) error {
	ctx, cancel := context.WithTimeout(ctx, failureTimeout)
	defer cancel()
	hosts := t.State()
	for _, balancer := range t.balancers {
		err := netlab.Await(ctx, netlab.Poll, func() error { return t.checkState(ctx, hosts.Host(balancer), server, state) })
		if err != nil {
			return fmt.Errorf("%s: %w", balancer, err)
		}
	}
	return nil
}

// checkState returns an error if a balancer has the server in another state in some service.
func (t *testbed) checkState(ctx context.Context, balancer *netlab.HostState, server string, state observe.HealthState) error {
	backends, err := netlab.Decode[[]observe.Backend](control.Dial(balancer.Socket).Backends(ctx, ""))
	if err != nil {
		return err
	}
	own := t.State().Host(server).Addresses
	for _, b := range backends {
		if slices.Contains(own, b.Address) && b.Health.State != state {
			return fmt.Errorf("%s is %s in %s, want %s", server, b.Health.State, b.Service, state)
		}
	}
	return nil
}

const (
	// lossTimeout is how long the router may take to detect that a balancer is lost, or
	// back: longer than any hold time.
	lossTimeout = 15 * time.Second
	// around is the time under load before and after a balancer is lost: every client
	// sends at least once in it.
	around = 2 * time.Second
)

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

// recoverBalancer mends the link of the lost balancer and returns when the router
// uses it again.
func (t *testbed) recoverBalancer(ctx context.Context) error {
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
	var sockets []string
	state := t.State()
	for _, name := range t.balancers {
		sockets = append(sockets, state.Host(name).Socket)
	}
	return netlab.AwaitSessions(ctx, sockets, true)
}

// loseOnly loses the last balancer while no backend changes.
func (t *testbed) loseOnly(ctx context.Context) error {
	if err := netlab.Sleep(ctx, around); err != nil {
		return err
	}
	if err := t.loseBalancer(ctx); err != nil {
		return err
	}
	return netlab.Sleep(ctx, around)
}
