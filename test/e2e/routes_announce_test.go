// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// vipSecond has one service, "second".
const vipSecond = "10.1.2.1"

// A VIP has a route as long as it is served, and no longer.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "announce", routed(t, netlab.ECMPOptions{Router: netlab.FRR, Second: 3, Servers: 4}))
	t.Run("programmed", l.checkProgrammedFirst)
	t.Run("unreachable", l.checkUnreachable)
	t.Run("minHealthy", l.checkMinHealthy)
	t.Run("flapping", l.checkFlapping)
	t.Run("policies", l.checkPolicies)
	t.Run("leaving", l.checkLeaving)
}

// second are the lab's services with another one of that name.
func (l *lab) second(change func(*lb.Service)) []lb.Service {
	services := slices.Clone(l.topology.Services)
	for i := range services {
		if s := &services[i]; s.Name == "second" {
			s.Backends = slices.Clone(s.Backends)
			change(s)
		}
	}
	return services
}

// Whoever sees the route can use it at once, and it goes with the service.
func (l *lab) checkProgrammedFirst(t *testing.T) {
	without := slices.DeleteFunc(slices.Clone(l.topology.Services), func(s lb.Service) bool { return s.Name == "second" })
	table, err := l.Table("router")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for range 5 {
		l.configure(t, without)
		l.awaitRouteOf(t, vipSecond)
		for _, h := range l.hosts(netlab.Balancer) {
			l.write(t, &h, l.config(h.Name, l.topology.Services))
		}
		until(t, "the router has a route", func() bool {
			via, err := table.Via(hostRoute(vipSecond))
			if err != nil {
				t.Fatal(err)
			}
			return len(via) > 0
		})
		l.gets(t, "client", origin(vipSecond), 1)
		l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	}
	for _, h := range l.hosts(netlab.Balancer) {
		if e := exitsOf(t, &h); e["drop_no_backend"] > 0 {
			t.Errorf("%s: packets came that nobody could be given: %v", h.Name, e)
		}
	}
}

// announcement is what a balancer says of a VIP's route.
func (l *lab) announcement(t *testing.T, host, vip string) observe.Announcement {
	t.Helper()
	all := l.routes(t, host).Announcements
	i := slices.IndexFunc(all, func(a observe.Announcement) bool { return a.Prefix == hostRoute(vip) })
	if i < 0 {
		t.Fatalf("%s says nothing of %s: %+v", host, vip, all)
	}
	return all[i]
}

// A balancer that can't reach the backends has no route.
func (l *lab) checkUnreachable(t *testing.T) {
	h := l.State().Host("lb1")
	l.write(t, h, l.config(h.Name, l.second(func(s *lb.Service) {
		s.Backends = []lb.Backend{{Address: netip.MustParseAddr("10.0.2.200"), Port: 80, Weight: 1}}
	})))
	l.awaitRouteOf(t, vipSecond, "lb2", "lb3")
	if a := l.announcement(t, h.Name, vipSecond); a.Announced || !strings.HasPrefix(a.Reason, "second: 0 of 1 backends in use, 1 wanted (10.0.2.200:80: ") {
		t.Errorf("announcement %+v", a)
	}
	l.gets(t, "client", origin(vipSecond), 20)
	l.write(t, h, l.config(h.Name, l.topology.Services))
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
}

// With too few healthy backends the route goes, with enough it comes back.
func (l *lab) checkMinHealthy(t *testing.T) {
	l.configure(t, l.second(func(s *lb.Service) { s.Health, s.MinHealthy = &check, 3 }))
	servers := l.serverNames()
	l.killServer(t, servers[0])
	until(t, "the balancers have noticed", func() bool {
		for _, h := range l.hosts(netlab.Balancer) {
			if services(t, &h)["second"].BackendsHealthy != 3 {
				return false
			}
		}
		return true
	})
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3") // three are enough
	killed := l.killServer(t, servers[1])
	l.awaitRouteOf(t, vipSecond)
	t.Logf("withdrawn %s after a server died that is missed after %s",
		time.Since(killed).Round(time.Millisecond), time.Duration(check.Fall)*check.Interval)
	if a := l.announcement(t, "lb1", vipSecond); a.Reason != "second: 2 of 4 backends healthy, 3 wanted" || a.Withdrawals == 0 {
		t.Errorf("announcement %+v", a)
	}
	l.awaitVia(t, "lb1", "lb2", "lb3")
	for _, name := range servers[:2] {
		l.startServer(t, name)
	}
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
}

// A service that comes and goes is held back; an operator has it back at once.
func (l *lab) checkFlapping(t *testing.T) {
	h := l.State().Host("lb1")
	quick := check
	quick.Interval, quick.Timeout, quick.Rise, quick.Fall = 50*time.Millisecond, 50*time.Millisecond, 1, 1
	l.write(t, h, l.config(h.Name, l.second(func(s *lb.Service) {
		s.Health, s.MinHealthy = &quick, len(s.Backends)
	})))
	server := l.serverNames()[0]
	flapped := within(patience, func() bool {
		l.killServer(t, server)
		until(t, "the service is lost", func() bool { return !l.announcement(t, h.Name, vipSecond).Announced })
		l.startServer(t, server)
		until(t, "the service is back", func() bool { return services(t, h)["second"].BackendsInUse == 4 })
		return strings.HasPrefix(l.announcement(t, h.Name, vipSecond).Reason, "damped for ")
	})
	if !flapped {
		t.Errorf("never damped: %+v", l.announcement(t, h.Name, vipSecond))
	}
	l.awaitRouteOf(t, vipSecond, "lb2", "lb3")
	l.show(t, h.Name, "drain", "service", "second")
	l.show(t, h.Name, "undrain", "service", "second")
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	l.configure(t, l.topology.Services)
}

// Policies change at a reload, and the router has what they say.
func (l *lab) checkPolicies(t *testing.T) {
	h, med := l.State().Host("lb1"), uint32(7)
	config := *l.topology.Host(h.Name).Agent.BGP
	config.Policies = []bgp.Policy{{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, Aggregate: true,
		Attributes: bgp.Attributes{
			Communities: []bgp.Community{65021<<16 | 100}, LargeCommunities: []bgp.LargeCommunity{{65021, 1, 2}}, MED: &med, Prepend: 2,
		},
	}}
	l.reconfigureBGP(t, h, &config)
	l.awaitRouteOf(t, vipSecond, "lb2", "lb3")
	var heard struct {
		Paths []struct {
			Path      struct{ String string } `json:"aspath"`
			MED       uint32                  `json:"metric"`
			Community struct{ String string }
			Large     struct{ String string } `json:"largeCommunity"`
		}
	}
	l.frr(t, "show bgp ipv4 unicast 10.1.2.0/24", &heard)
	if len(heard.Paths) != 1 {
		t.Fatalf("the router has %+v", heard)
	}
	if p := heard.Paths[0]; p.Path.String != "65021 65021 65021" || p.MED != med || p.Community.String != "65021:100" || p.Large.String != "65021:1:2" {
		t.Errorf("the router has %+v", p)
	}
	if line := lineOf(l.show(t, h.Name, "routes"), "10.1.2.0/24"); !strings.Contains(line, "65021:100, 65021:1:2, med 7, prepend 2") {
		t.Errorf("fairlead routes says %q", line)
	}
	l.awaitVia(t, "lb1", "lb2", "lb3") // who is under no policy
	l.write(t, h, l.config(h.Name, l.topology.Services))
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
}

// Before a planned leave routers are asked to choose others, and do, while they
// still have the route.
func (l *lab) checkLeaving(t *testing.T) {
	h := l.State().Host("lb1")
	config := *l.topology.Host(h.Name).Agent.BGP
	config.ShutdownDelay = time.Minute
	l.reconfigureBGP(t, h, &config)
	l.show(t, h.Name, "drain", "node")
	l.awaitRouteOf(t, vipSecond, "lb2", "lb3")
	if a := l.announcement(t, h.Name, vipSecond); !a.Announced || !a.GracefulShutdown || a.Reason != "node drained" {
		t.Errorf("announcement %+v", a)
	}
	var heard struct {
		Paths []struct {
			Peer       struct{ PeerID string }
			Preference *uint32 `json:"locPrf"`
			Community  struct{ String string }
		}
	}
	l.frr(t, "show bgp ipv4 unicast "+vipSecond+"/32", &heard)
	leaving := 0
	for _, p := range heard.Paths {
		asked := p.Community.String == "graceful-shutdown" && p.Preference != nil && *p.Preference == 0
		if asked && p.Peer.PeerID == l.address(h.Name).String() {
			leaving++
		}
	}
	if len(heard.Paths) != 3 || leaving != 1 {
		t.Errorf("the router has %+v", heard)
	}
	l.show(t, h.Name, "undrain", "node")
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	l.write(t, h, l.config(h.Name, l.topology.Services))
}
