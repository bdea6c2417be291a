// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// vipSecond has one service, "second".
const vipSecond = "10.1.2.1"

// A VIP has a route as long as it is served, and no longer.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "announce", harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR, Second: 3, Servers: 4, Networks: true}))
	t.Run("programmed", l.checkProgrammedFirst)
	t.Run("unreachable", l.checkUnreachable)
	t.Run("minHealthy", l.checkMinHealthy)
	t.Run("flapping", l.checkFlapping)
	t.Run("policies", l.checkPolicies)
	t.Run("leaving", l.checkLeaving)
}

// second are the lab's services with another one of that name.
func (l *lab) second(change func(*lb.Service)) []lb.Service {
	services := slices.Clone(l.Topology.Services)
	for i := range services {
		if s := &services[i]; s.Name == "second" {
			s.Backends = slices.Clone(s.Backends)
			change(s)
		}
	}
	return services
}

// The route can be used as soon as it is announced, and is withdrawn with the service.
func (l *lab) checkProgrammedFirst(t *testing.T) {
	without := slices.DeleteFunc(slices.Clone(l.Topology.Services), func(s lb.Service) bool { return s.Name == "second" })
	table, err := l.Table("router")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for range 5 {
		l.Configure(t, without)
		l.awaitRouteOf(t, vipSecond)
		for _, h := range l.Hosts(netlab.Balancer) {
			l.Write(t, &h, l.Config(h.Name, l.Topology.Services))
		}
		harness.Until(t, "the router has a route", func() bool {
			via, err := table.Via(hostRoute(vipSecond))
			if err != nil {
				t.Fatal(err)
			}
			return len(via) > 0
		})
		l.Gets(t, "client", harness.Origin(vipSecond), 1)
		l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	}
	for _, h := range l.Hosts(netlab.Balancer) {
		if e := harness.ExitsOf(t, &h); e["drop_no_backend"] > 0 {
			t.Errorf("%s: packets came without a backend for them: %v", h.Name, e)
		}
	}
}

// announcement is what a balancer says of a VIP's route.
func (l *lab) announcement(t *testing.T, host, vip string) observe.Announcement {
	t.Helper()
	all := l.Routes(t, host).Announcements
	i := slices.IndexFunc(all, func(a observe.Announcement) bool { return a.Prefix == hostRoute(vip) })
	if i < 0 {
		t.Fatalf("%s says nothing of %s: %+v", host, vip, all)
	}
	return all[i]
}

// A balancer that can't reach the backends has no route.
func (l *lab) checkUnreachable(t *testing.T) {
	h := l.State().Host("lb1")
	l.Write(t, h, l.Config(h.Name, l.second(func(s *lb.Service) {
		s.Backends = []lb.Backend{{Address: netip.MustParseAddr("10.0.2.200"), Port: 80, Weight: 1}}
	})))
	l.awaitRouteOf(t, vipSecond, "lb2", "lb3")
	if a := l.announcement(t, h.Name, vipSecond); a.Announced || !strings.HasPrefix(a.Reason, "second: 0 of 1 backends in use, 1 wanted (10.0.2.200:80: ") {
		t.Errorf("announcement %+v", a)
	}
	l.Gets(t, "client", harness.Origin(vipSecond), 20)
	l.Write(t, h, l.Config(h.Name, l.Topology.Services))
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
}

// With too few healthy backends the route goes, with enough it comes back.
func (l *lab) checkMinHealthy(t *testing.T) {
	l.Configure(t, l.second(func(s *lb.Service) { s.Health, s.MinHealthy = &harness.Check, 3 }))
	servers := l.ServerNames()
	l.KillServer(t, servers[0])
	harness.Until(t, "the balancers have noticed", func() bool {
		for _, h := range l.Hosts(netlab.Balancer) {
			if harness.Services(t, &h)["second"].BackendsHealthy != 3 {
				return false
			}
		}
		return true
	})
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3") // three are enough
	killed := l.KillServer(t, servers[1])
	l.awaitRouteOf(t, vipSecond)
	t.Logf("withdrawn %s after a server died that is missed after %s",
		time.Since(killed).Round(time.Millisecond), time.Duration(harness.Check.Fall)*harness.Check.Interval)
	if a := l.announcement(t, "lb1", vipSecond); a.Reason != "second: 2 of 4 backends healthy, 3 wanted" || a.Withdrawals == 0 {
		t.Errorf("announcement %+v", a)
	}
	l.awaitVia(t, "lb1", "lb2", "lb3")
	for _, name := range servers[:2] {
		l.StartServer(t, name)
	}
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
}

// A service that comes and goes is held back; an operator has it back at once.
func (l *lab) checkFlapping(t *testing.T) {
	h := l.State().Host("lb1")
	quick := harness.Check
	quick.Interval, quick.Timeout, quick.Rise, quick.Fall = 50*time.Millisecond, 50*time.Millisecond, 1, 1
	l.Write(t, h, l.Config(h.Name, l.second(func(s *lb.Service) {
		s.Health, s.MinHealthy = &quick, len(s.Backends)
	})))
	server := l.ServerNames()[0]
	flapped := harness.Within(harness.Timeout, func() bool {
		l.KillServer(t, server)
		harness.Until(t, "the service is lost", func() bool { return !l.announcement(t, h.Name, vipSecond).Announced })
		l.StartServer(t, server)
		harness.Until(t, "the service is back", func() bool { return harness.Services(t, h)["second"].BackendsInUse == 4 })
		return strings.HasPrefix(l.announcement(t, h.Name, vipSecond).Reason, "damped for ")
	})
	if !flapped {
		t.Errorf("never damped: %+v", l.announcement(t, h.Name, vipSecond))
	}
	l.awaitRouteOf(t, vipSecond, "lb2", "lb3")
	l.Show(t, h.Name, "drain", "service", "second")
	l.Show(t, h.Name, "undrain", "service", "second")
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	l.Configure(t, l.Topology.Services)
}

// Policies change at a reload, and the router has what they say.
func (l *lab) checkPolicies(t *testing.T) {
	h, med := l.State().Host("lb1"), uint32(7)
	config := *l.Topology.Host(h.Name).Agent.BGP
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
	l.FRR(t, "show bgp ipv4 unicast 10.1.2.0/24", &heard)
	if len(heard.Paths) != 1 {
		t.Fatalf("the router has %+v", heard)
	}
	if p := heard.Paths[0]; p.Path.String != "65021 65021 65021" || p.MED != med || p.Community.String != "65021:100" || p.Large.String != "65021:1:2" {
		t.Errorf("the router has %+v", p)
	}
	if line := lineOf(l.Show(t, h.Name, "routes"), "10.1.2.0/24"); !strings.Contains(line, "65021:100, 65021:1:2, med 7, prepend 2") {
		t.Errorf("fairlead routes says %q", line)
	}
	l.awaitVia(t, "lb1", "lb2", "lb3") // who is under no policy
	l.Write(t, h, l.Config(h.Name, l.Topology.Services))
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
}

// Before a planned leave routers are asked to choose others, and do, while they
// still have the route.
func (l *lab) checkLeaving(t *testing.T) {
	h := l.State().Host("lb1")
	config := *l.Topology.Host(h.Name).Agent.BGP
	config.ShutdownDelay = time.Minute
	l.reconfigureBGP(t, h, &config)
	l.Show(t, h.Name, "drain", "node")
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
	l.FRR(t, "show bgp ipv4 unicast "+vipSecond+"/32", &heard)
	leaving := 0
	for _, p := range heard.Paths {
		asked := p.Community.String == "graceful-shutdown" && p.Preference != nil && *p.Preference == 0
		if asked && p.Peer.PeerID == l.Address(h.Name).String() {
			leaving++
		}
	}
	if len(heard.Paths) != 3 || leaving != 1 {
		t.Errorf("the router has %+v", heard)
	}
	l.Show(t, h.Name, "undrain", "node")
	l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	l.Write(t, h, l.Config(h.Name, l.Topology.Services))
}
