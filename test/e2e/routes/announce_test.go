// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	routes, err := l.FollowRoutes("router", hostRoute(vipSecond))
	if err != nil {
		t.Fatal(err)
	}
	defer routes.Close()
	for range 5 {
		l.Configure(t, without)
		l.awaitRouteOf(t, vipSecond)
		for _, h := range l.Hosts(netlab.Balancer) {
			l.Write(t, &h, l.Config(h.Name, l.Topology.Services))
		}
		harness.Until(t, "the router has a route", func() bool { return len(routes.Hops(hostRoute(vipSecond))) > 0 })
		l.Gets(t, "client", harness.Origin(vipSecond), 1)
		l.awaitRouteOf(t, vipSecond, "lb1", "lb2", "lb3")
	}
	for _, h := range l.Hosts(netlab.Balancer) {
		if e := harness.ExitsOf(t, &h); e["drop_no_backend"] > 0 {
			t.Errorf("%s: packets came without a backend for them: %v", h.Name, e)
		}
	}
}

// announcement returns a balancer's report of a VIP's route.
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
