// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	balancers = 4 // the most that the dissertation has
	servers   = 4

	echoPort = 7 // of the lab's services

	routerHost   = "router"
	switchDevice = "eth1" // the router's interface to the balancers
	clientHost   = "client"
	agentProcess = "agent"
)

// stepTimeout bounds steps without a limit of their own: an agent starts, a session
// is established.
const stepTimeout = 30 * time.Second

// family is an address family, as results are labelled.
type family string

const (
	ipv4 family = "ipv4"
	ipv6 family = "ipv6"
)

// families are in the order of the report.
func families() []family { return []family{ipv4, ipv6} }

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// testbed is a lab whose balancers come and go while its router is observed.
type testbed struct {
	*netlab.Lab
	config   *Config
	setting  Setting
	report   *bench.Report
	topology netlab.Topology
	// names of the balancers by number, and the state of each.
	names []string
	fleet fleet
	// servers of all services.
	servers *bench.Presence
	// vips are the host routes to the services' addresses.
	vips map[family]netip.Prefix
	// routes are the router's to the VIPs, tap records the packets that it sends.
	routes *netlab.Routes
	tap    *tap
}

// topology is the lab of a setting, with echo services only if ports are given.
func (s Setting) topology(servers int, echoPorts ...uint16) (netlab.Topology, error) {
	return netlab.ECMP(netlab.ECMPOptions{
		Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: s.Router, Reflector: s.Reflector,
		EchoPorts: echoPorts,
	})
}

// newTestbed builds the lab of a setting and starts to observe its router.
func newTestbed(ctx context.Context, c *Config, setting Setting, topology netlab.Topology, report *bench.Report) (t *testbed, err error) {
	t = &testbed{config: c, setting: setting, topology: topology, report: report, fleet: make(fleet, balancers), vips: map[family]netip.Prefix{}}
	t.servers = bench.NewPresence(t.topology.Probes[0].Answers)
	for _, service := range t.topology.Services {
		t.vips[familyOf(service.Address)] = netip.PrefixFrom(service.Address, service.Address.BitLen())
	}
	if t.Lab, err = c.Labs.Up(ctx, c.Name+"-"+setting.slug(), t.topology); err != nil {
		return nil, err
	}
	for _, h := range t.Hosts(netlab.Balancer) {
		t.names = append(t.names, h.Name)
	}
	if err := t.observe(); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	return t, nil
}

// observe starts to watch the router's routes, and its packets to the balancers.
func (t *testbed) observe() (err error) {
	var prefixes []netip.Prefix
	var vips []netip.Addr
	for _, f := range families() {
		prefixes = append(prefixes, t.vips[f], secondVIP(f))
		vips = append(vips, t.vips[f].Addr())
	}
	if t.routes, err = t.FollowRoutes(routerHost, prefixes...); err != nil {
		return err
	}
	return t.Do(routerHost, func() (err error) {
		t.tap, err = openTap(switchDevice, vips)
		return err
	})
}

// close removes the lab, also if ctx has ended.
func (t *testbed) close(ctx context.Context) error {
	var err error
	if t.routes != nil {
		t.routes.Close()
	}
	if t.tap != nil {
		err = t.tap.close()
	}
	return errors.Join(err, t.Down(context.WithoutCancel(ctx)))
}

// hops are equal next hops through these balancers.
func (t *testbed) hops(f family, balancers []int) netlab.Hops {
	var gateways []netip.Addr
	for _, n := range balancers {
		gateways = append(gateways, t.gateway(f, n))
	}
	return netlab.EqualHops(gateways...)
}

// gateway is a balancer's address.
func (t *testbed) gateway(f family, n int) netip.Addr {
	all := t.State().Host(t.names[n]).Addresses
	return all[slices.IndexFunc(all, func(a netip.Addr) bool { return familyOf(a) == f })]
}

// tables are the right ones for a state of the fleet.
func (t *testbed) tables(now fleet) map[netip.Prefix]netlab.Hops {
	tables := map[netip.Prefix]netlab.Hops{}
	for family, prefix := range t.vips {
		tables[prefix] = t.hops(family, now.in(serving))
	}
	return tables
}

// await waits until the router's tables are these.
func (t *testbed) await(ctx context.Context, tables map[netip.Prefix]netlab.Hops) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return t.routes.Await(ctx, tables)
}

// restore makes all balancers serve again.
func (t *testbed) restore(ctx context.Context) error {
	for state, action := range map[state]action{drained: undrain, stopped: start} {
		if err := t.apply(ctx, change{action, t.fleet.in(state)}); err != nil {
			return err
		}
	}
	if err := t.await(ctx, t.tables(t.fleet)); err != nil {
		return err
	}
	return t.settle(ctx)
}

// apply makes a change of all its balancers at once, and returns when the agents
// have accepted it.
func (t *testbed) apply(ctx context.Context, c change) error {
	group, working := errgroup.WithContext(ctx)
	for _, n := range c.balancers {
		group.Go(func() error {
			if err := t.act(working, c.action, t.names[n]); err != nil {
				return fmt.Errorf("%s %s: %w", c.action, t.names[n], err)
			}
			return nil
		})
	}
	t.fleet = t.fleet.after(c)
	return group.Wait()
}

func (t *testbed) act(ctx context.Context, a action, name string) error {
	agent := control.Dial(t.State().Host(name).Socket)
	switch a {
	case drain:
		return agent.Drain(ctx, store.Target{})
	case undrain:
		return agent.Undrain(ctx, store.Target{})
	case stop:
		return t.Stop(ctx, name, agentProcess)
	default:
		return t.Restart(ctx, name, agentProcess)
	}
}

// settle waits until all sessions of the running agents are up.
func (t *testbed) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var sockets []string
	lab := t.State()
	for n, name := range t.names {
		if t.fleet[n] != stopped {
			sockets = append(sockets, lab.Host(name).Socket)
		}
	}
	return netlab.AwaitSessions(ctx, sockets, t.setting.bfd())
}
