// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/bench/ecmp/fib"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/netlab/operator"
	"fairlead.io/fairlead/internal/observe"
)

const (
	// balancers are as many as the dissertation's most.
	balancers = 4
	servers   = 4

	// webPort and echoPort are those of the lab's services.
	webPort  = 80
	echoPort = 7

	routerHost   = "router"
	clientHost   = "client"
	agentProcess = "agent"
)

// patience is how long anything may take that has no limit of its own: an agent
// that starts, a session that is established again.
const patience = 30 * time.Second

// site is a lab whose balancers come and go while its router is watched.
type site struct {
	*netlab.Lab
	topology netlab.Topology
	// names of the balancers, by number, and how they stand.
	names []string
	fleet fleet
	// bfd says that the balancers' peer has BFD.
	bfd bool
	// vips has the prefixes of the services' address, one for each family.
	vips map[family]netip.Prefix
	// routes are the router's to the VIPs, tap sees what it sends there.
	routes *fib.Watcher
	tap    *tap
}

// bringUp makes the lab of a setting and watches its router.
func bringUp(ctx context.Context, labs netlab.Labs, name, fairlead string, how Setting) (s *site, err error) {
	s = &site{fleet: make(fleet, balancers), bfd: how.bfd(), vips: map[family]netip.Prefix{}}
	s.topology, err = netlab.ECMP(netlab.ECMPOptions{
		Fairlead: fairlead, Forward: lb.L2DSR, Balancers: balancers, Servers: servers,
		Router: how.Router, Reflector: how.Reflector,
	})
	if err != nil {
		return nil, err
	}
	s.serveLines()
	var addresses []netip.Addr
	for _, service := range s.topology.Services {
		if a := service.Address; !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
			s.vips[familyOf(a)] = netip.PrefixFrom(a, a.BitLen())
		}
	}
	for _, h := range s.topology.Hosts {
		if h.Role == netlab.Balancer {
			s.names = append(s.names, h.Name)
		}
	}
	if s.Lab, err = labs.Up(ctx, name, s.topology); err != nil {
		return nil, err
	}
	if err := s.watch(addresses); err != nil {
		return nil, errors.Join(err, s.takeDown(ctx))
	}
	return s, nil
}

// serveLines adds a service for held TCP connections: that of the echo servers'
// lines, beside each one for their datagrams.
func (s *site) serveLines() {
	services := slices.Clone(s.topology.Services)
	for _, service := range s.topology.Services {
		if service.Protocol == lb.UDP {
			service.Name, service.Protocol = "lines-"+service.Name, lb.TCP
			services = append(services, service)
		}
	}
	s.topology.SetServices(services)
}

// watch begins to watch the router.
func (s *site) watch(vips []netip.Addr) error {
	device := ""
	for _, link := range s.topology.Links {
		for _, ends := range [][2]netlab.End{{link.A, link.B}, {link.B, link.A}} {
			if ends[0].Host == routerHost && ends[1].Host != clientHost {
				device = ends[0].Interface
			}
		}
	}
	var prefixes []netip.Prefix
	for _, f := range families() {
		prefixes = append(prefixes, s.vips[f], secondVIP(f))
	}
	return s.Do(routerHost, func() (err error) {
		if s.routes, err = fib.Watch(prefixes...); err == nil {
			s.tap, err = openTap(device, vips)
		}
		return err
	})
}

// takeDown leaves nothing of the site, also if ctx has ended.
func (s *site) takeDown(ctx context.Context) error {
	var errs []error
	if s.routes != nil {
		errs = append(errs, s.routes.Close())
	}
	if s.tap != nil {
		errs = append(errs, s.tap.close())
	}
	return errors.Join(append(errs, s.Down(context.WithoutCancel(ctx)))...)
}

// dial opens connections of the client.
func (s *site) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.Dial(ctx, clientHost, network, address)
}

// hops are equal next hops through some balancers.
func (s *site) hops(f family, balancers []int) fib.Hops {
	var gateways []netip.Addr
	for _, n := range balancers {
		gateways = append(gateways, s.gateway(f, n))
	}
	return fib.Equally(gateways...)
}

// gateway is a balancer's address.
func (s *site) gateway(f family, n int) netip.Addr {
	for _, a := range s.State().Host(s.names[n]).Addresses {
		if familyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// tables are the right ones while the fleet stands so.
func (s *site) tables(now fleet) map[netip.Prefix]fib.Hops {
	tables := map[netip.Prefix]fib.Hops{}
	for family, prefix := range s.vips {
		tables[prefix] = s.hops(family, now.are(serving))
	}
	return tables
}

// await waits until the router's tables are right and says what is wrong if they
// don't become so.
func (s *site) await(ctx context.Context, tables map[netip.Prefix]fib.Hops) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.routes.Await(ctx, tables)
}

// restore has all balancers serve again.
func (s *site) restore(ctx context.Context) error {
	for standing, action := range map[standing]action{drained: undrain, stopped: start} {
		if err := s.make(ctx, change{action, s.fleet.are(standing)}); err != nil {
			return err
		}
	}
	if err := s.await(ctx, s.tables(s.fleet)); err != nil {
		return err
	}
	return s.settle(ctx)
}

// make makes a change: all its balancers are told at once. It returns when they
// have taken note, and the fleet stands so.
func (s *site) make(ctx context.Context, c change) error {
	group, working := errgroup.WithContext(ctx)
	for _, n := range c.balancers {
		group.Go(func() error {
			if err := s.act(working, c.action, s.names[n]); err != nil {
				return fmt.Errorf("%s %s: %w", c.action, s.names[n], err)
			}
			return nil
		})
	}
	s.fleet = s.fleet.apply(c)
	return group.Wait()
}

func (s *site) act(ctx context.Context, a action, name string) error {
	operator := observe.Dial(s.State().Host(name).Socket)
	switch a {
	case drain:
		return operator.Drain(ctx, observe.DrainTarget{})
	case undrain:
		return operator.Undrain(ctx, observe.DrainTarget{})
	case stop:
		return s.Stop(ctx, name, agentProcess)
	default:
		return s.Restart(ctx, name, agentProcess)
	}
}

// settle waits until every session of the agents that run is established, and
// watched.
func (s *site) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var sockets []string
	state := s.State()
	for n, name := range s.names {
		if s.fleet[n] != stopped {
			sockets = append(sockets, state.Host(name).Socket)
		}
	}
	return operator.AwaitSessions(ctx, sockets, s.bfd)
}
