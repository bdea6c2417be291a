// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fake"
)

// scene is the input of a decision: services that are served, unless a test spoils that.
type scene struct {
	t     testing.TB
	store *store.Store
	Input
	// Programmed are the statuses in the store, to which its entries point.
	Programmed []store.Status
}

// service has three backends of weight 1, probed with a panic threshold of 0.
func service(name, vip string, port uint16) lb.Service {
	at := fake.VIP(vip)
	at.Port = port
	return fake.Checked(name, at, "10.0.0.1", "10.0.0.2", "10.0.0.3")
}

// newScene has services that are programmed and served.
func newScene(t testing.TB, services ...lb.Service) *scene {
	s := &scene{t: t, store: store.New(), Input: Input{Working: true, Draining: map[string]*drain{}}}
	if _, err := s.store.Set(services); err != nil {
		t.Fatal(err)
	}
	s.program()
	return s
}

// program sets the statuses of a data plane that has done everything.
func (s *scene) program() {
	s.Programmed = nil
	for _, e := range s.store.Snapshot().Services {
		status := store.Status{VIP: e.Service.VIP, Programmed: e.Revision}
		for i := range e.Service.Backends {
			b := &e.Service.Backends[i]
			state := dataplane.BackendState{ID: b.ID(), InUse: usable(b)}
			if !state.InUse {
				state.Reason = "unhealthy"
			}
			status.State.Backends = append(status.State.Backends, state)
		}
		s.Programmed = append(s.Programmed, status)
	}
	s.store.SetStatus(s.Programmed, nil)
	s.Desired = s.store.Snapshot()
}

// judge says that so many backends of a service live.
func (s *scene) evaluate(svc lb.Service, living int) {
	var states []health.Verdict
	for i, b := range svc.Backends {
		states = append(states, health.Verdict{VIP: svc.VIP, Backend: b.ID(), State: health.State{Checked: true, Known: true, Healthy: i < living, Share: lb.WholeShare}})
	}
	s.Desired = s.store.ApplyVerdicts(states)
}

func (s *scene) drain(targets ...store.Target) {
	for _, t := range targets {
		s.Desired = s.store.Drain(store.Drain{Target: t})
	}
}

var (
	web = service("web", "10.1.1.1", 80)
	dns = service("dns", "10.1.1.1", 53)
)

func with(svc lb.Service, change func(*lb.Service)) lb.Service {
	change(&svc)
	return svc
}

// some has some of the service's backends.
func some(svc lb.Service, from, to int) lb.Service {
	svc.Backends = svc.Backends[from:to]
	return svc
}

// weighted is web with these weights of its backends.
func weighted(weights ...int) lb.Service {
	svc := service("web", "10.1.1.1", 80)
	for i := range svc.Backends {
		svc.Backends[i].Weight = weights[i]
	}
	return svc
}

// Every reason for which a prefix is not announced, or will soon not be.
func TestReasons(t *testing.T) {
	wide := with(web, func(s *lb.Service) { s.MinHealthy = 2 })
	panicky := service("web", "10.1.1.1", 80)
	panicky.Health.PanicThreshold = 50
	for name, test := range map[string]struct {
		services  []lb.Service
		spoil     func(s *scene)
		announced bool
		reason    string
	}{
		"served":            {[]lb.Service{web}, func(*scene) {}, true, ""},
		"not at work":       {[]lb.Service{web}, func(s *scene) { s.Working = false }, false, "the data plane is not attached yet"},
		"no status":         {[]lb.Service{web}, func(s *scene) { s.Desired.Services[0].Status = nil }, false, "web: not programmed yet"},
		"not programmed":    {[]lb.Service{web}, func(s *scene) { s.Programmed[0] = store.Status{VIP: web.VIP} }, false, "web: not programmed yet"},
		"failed":            {[]lb.Service{web}, func(s *scene) { s.Programmed[0] = store.Status{VIP: web.VIP, Error: "no room"} }, false, "web: not programmed: no room"},
		"a change failed":   {[]lb.Service{web}, func(s *scene) { s.Programmed[0].Error = "no room" }, true, ""},
		"being deleted":     {[]lb.Service{web}, func(s *scene) { s.Programmed[0].Deleting = true }, false, "web: being deleted"},
		"another's status":  {[]lb.Service{web, dns}, func(s *scene) { s.Desired.Services[0].Status = nil }, true, ""},
		"unhealthy":         {[]lb.Service{web}, func(s *scene) { s.evaluate(web, 0) }, false, "web: 0 of 3 backends healthy, 1 wanted"},
		"barely healthy":    {[]lb.Service{wide}, func(s *scene) { s.evaluate(wide, 2) }, true, ""},
		"too few healthy":   {[]lb.Service{wide}, func(s *scene) { s.evaluate(wide, 1) }, false, "web: 1 of 3 backends healthy, 2 wanted"},
		"in panic":          {[]lb.Service{panicky}, func(s *scene) { s.evaluate(panicky, 0) }, true, ""},
		"no backends":       {[]lb.Service{with(web, func(s *lb.Service) { s.Backends = nil })}, func(*scene) {}, false, "web: 0 of 0 backends healthy, 1 wanted"},
		"backends drained":  {[]lb.Service{wide}, func(s *scene) { s.drain(target(0), target(1)) }, false, "web: 1 of 3 backends healthy, 2 wanted"},
		"unreachable":       {[]lb.Service{wide}, func(s *scene) { s.unreachable(0, 1) }, false, "web: 1 of 3 backends in use, 2 wanted (10.0.0.1:80: no neighbour)"},
		"reachable":         {[]lb.Service{wide}, func(s *scene) { s.unreachable(1) }, true, ""},
		"dead, unreachable": {[]lb.Service{wide}, func(s *scene) { s.evaluate(wide, 2); s.program(); s.unreachable(1) }, false, "web: 1 of 3 backends in use, 2 wanted (10.0.0.2:80: no neighbour)"},
		"recovered, not programmed yet": {[]lb.Service{web}, func(s *scene) { s.evaluate(web, 0); s.program(); s.evaluate(web, 3) }, false,
			"web: 0 of 3 backends in use, 1 wanted"},
		"one of two": {[]lb.Service{web, dns}, func(s *scene) { s.evaluate(web, 0) }, true, ""},
		"both":       {[]lb.Service{web, dns}, func(s *scene) { s.evaluate(web, 0); s.evaluate(dns, 0) }, false, "dns: 0 of 3 backends healthy, 1 wanted; web: 0 of 3 backends healthy, 1 wanted"},
		"in a segment": {[]lb.Service{with(web, func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 7} })}, func(*scene) {}, false,
			"web: no policy has a next hop in vlan 7"},
		"another in a segment": {[]lb.Service{dns, with(web, func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 7} })}, func(s *scene) { s.evaluate(dns, 0) }, false,
			"dns: 0 of 3 backends healthy, 1 wanted"},
		"service drained":  {[]lb.Service{web}, func(s *scene) { s.drain(store.Target{Service: "web"}) }, false, "web: drained"},
		"one drained":      {[]lb.Service{web, dns}, func(s *scene) { s.drain(store.Target{Service: "web"}) }, true, ""},
		"service moves":    {[]lb.Service{web}, func(s *scene) { s.Draining["web"] = &drain{} }, false, "web: drained"},
		"node drained":     {[]lb.Service{web, dns}, func(s *scene) { s.drain(store.Target{}) }, false, "node drained"},
		"stopping":         {[]lb.Service{web}, func(s *scene) { s.Stopping = true; s.drain(store.Target{}) }, false, "the agent stops"},
		"drained and dead": {[]lb.Service{web}, func(s *scene) { s.evaluate(web, 0); s.drain(store.Target{}) }, false, "node drained"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, test.services...)
			test.spoil(s)
			l := planner{prefixes: map[netip.Prefix]*record{}}
			plan := l.decide(time.Now(), &s.Input)
			if len(plan.Decisions) != 1 || len(plan.Routes()) == 1 != test.announced {
				t.Fatalf("%+v, want one, announced: %t", plan, test.announced)
			}
			if d := plan.Decisions[0]; d.Announced != test.announced || d.Reason != test.reason || d.Prefix.String() != "10.1.1.1/32" {
				t.Errorf("%s announced: %t (%s), want %t (%s)", d.Prefix, d.Announced, d.Reason, test.announced, test.reason)
			}
		})
	}
}

// A route stays while the data plane doesn't have the newest version of its service yet, if it uses
// enough backends of its version that aren't known to be down.
func TestReplacedBackends(t *testing.T) {
	wide := with(web, func(s *lb.Service) { s.MinHealthy = 2 })
	for name, test := range map[string]struct {
		before, after lb.Service
		spoil         func(s *scene)
		reason        string // of the withdrawal; empty: the route stays
	}{
		"all":               {some(web, 0, 2), some(web, 2, 3), func(*scene) {}, ""},
		"some":              {some(web, 0, 2), some(wide, 1, 3), func(*scene) {}, ""},
		"weights":           {weighted(1, 1, 0), weighted(0, 0, 1), func(*scene) {}, ""},
		"too few before":    {some(web, 0, 1), some(wide, 1, 3), func(*scene) {}, "web: 0 of 2 backends in use, 2 wanted"},
		"can't be replaced": {some(web, 0, 2), some(web, 2, 3), func(s *scene) { s.Programmed[0].Error = "no room" }, "web: 0 of 1 backends in use, 1 wanted"},
		"the former dead":   {some(web, 2, 3), web, func(s *scene) { s.evaluate(web, 2) }, "web: 0 of 3 backends in use, 1 wanted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, test.before)
			l := planner{prefixes: map[netip.Prefix]*record{}}
			if plan := l.decide(time.Now(), &s.Input); len(plan.Routes()) != 1 {
				t.Fatalf("%+v, want a route", plan)
			}
			if _, err := s.store.Set([]lb.Service{test.after}); err != nil {
				t.Fatal(err)
			}
			s.Desired = s.store.Snapshot()
			test.spoil(s)
			d := l.decide(time.Now(), &s.Input).Decisions[0]
			if d.Announced != (test.reason == "") || d.Reason != test.reason {
				t.Errorf("announced: %t (%s), want %t (%s)", d.Announced, d.Reason, test.reason == "", test.reason)
			}
		})
	}
}

func target(backend int) store.Target {
	return store.Target{Service: "web", Backend: web.Backends[backend].ID()}
}

// unreachable takes backends of the first service out of the data plane.
func (s *scene) unreachable(backends ...int) {
	for _, i := range backends {
		s.Programmed[0].State.Backends[i].InUse = false
		s.Programmed[0].State.Backends[i].Reason = "no neighbour"
	}
}

// The first prefix that has a VIP says how it is announced.
func TestPolicies(t *testing.T) {
	med := uint32(7)
	prefix := netip.MustParsePrefix
	l := planner{prefixes: map[netip.Prefix]*record{}, policies: []bgp.Policy{
		{Prefixes: []netip.Prefix{prefix("10.1.1.0/24"), prefix("fd00:10::/32")}, Aggregate: true, NextHop4: netip.MustParseAddr("fd00::1"), NextHop6: netip.MustParseAddr("fd00::2")},
		{Prefixes: []netip.Prefix{prefix("10.1.0.0/16")}, NextHop4: netip.MustParseAddr("10.0.0.9"), Attributes: bgp.Attributes{MED: &med}},
	}}
	s := newScene(t, web, dns, service("a", "10.1.1.255", 80), service("b", "10.1.2.1", 80), service("c", "10.2.0.1", 80), service("d", "fd00:10::1", 80), service("e", "fd00:11::1", 80))
	s.evaluate(web, 0)
	want := []bgp.Route{
		{Prefix: prefix("10.1.1.0/24"), NextHop: netip.MustParseAddr("fd00::1")},
		{Prefix: prefix("10.1.2.1/32"), NextHop: netip.MustParseAddr("10.0.0.9"), Attributes: bgp.Attributes{MED: &med}},
		{Prefix: prefix("10.2.0.1/32")},
		{Prefix: prefix("fd00:10::/32"), NextHop: netip.MustParseAddr("fd00::2")},
		{Prefix: prefix("fd00:11::1/128")},
	}
	plan := l.decide(time.Now(), &s.Input)
	got := plan.Routes()
	if len(got) != len(want) {
		t.Fatalf("%d routes %v, want %d", len(got), got, len(want))
	}
	for i := range want {
		if !got[i].Equal(&want[i]) {
			t.Errorf("route %+v, want %+v", got[i], want[i])
		}
	}
	if names := plan.Decisions[0].Services; len(names) != 3 || names[0] != "a" || names[2] != "web" {
		t.Errorf("services of the aggregate: %v", names)
	}
	s.evaluate(dns, 0)
	s.evaluate(service("a", "10.1.1.255", 80), 0)
	plan = l.decide(time.Now(), &s.Input)
	if d := plan.Decisions[0]; d.Announced || d.Withdrawals != 1 {
		t.Errorf("an aggregate of nothing: %+v", d)
	}
}

// VIPs that arrive in a VLAN are announced with its next hop. A prefix has one route: of the
// untagged network, or of the lowest VLAN.
func TestPoliciesOfVLANs(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	in := func(vlan uint32, name, address string) lb.Service {
		return with(service(name, address, 80), func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: vlan} })
	}
	l := planner{prefixes: map[netip.Prefix]*record{}, policies: []bgp.Policy{
		{Prefixes: all, VLAN: 200, NextHop4: netip.MustParseAddr("10.0.4.11")},
		{Prefixes: all, VLAN: 100, NextHop4: netip.MustParseAddr("10.0.3.11")},
		{Prefixes: all, VLAN: 300, NextHop4: netip.MustParseAddr("10.0.5.11")},
	}}
	s := newScene(t,
		in(100, "red", "10.1.2.1"), in(200, "blue", "10.1.2.2"),
		in(100, "red-both", "10.1.3.1"), in(200, "blue-both", "10.1.3.1"),
		service("plain", "10.1.4.1", 80), in(100, "red-plain", "10.1.4.1"),
		in(300, "green", "10.1.2.1"),
		in(400, "other", "10.1.5.1"), in(100, "elsewhere", "10.2.0.1"),
		with(in(0, "overlay", "10.1.6.1"), func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentVXLAN, ID: 100} }),
	)
	type result struct{ prefix, hop, services, reason string }
	got := func() (all []result) {
		plan := l.decide(time.Now(), &s.Input)
		for _, d := range plan.Decisions {
			r := result{prefix: d.Prefix.String(), services: strings.Join(d.Services, " "), reason: d.Reason}
			if d.Announced {
				r.hop = d.Route.NextHop.String()
			}
			all = append(all, r)
		}
		return all
	}
	want := []result{
		{"10.1.2.1/32", "10.0.3.11", "red", ""},
		{"10.1.2.2/32", "10.0.4.11", "blue", ""},
		{"10.1.3.1/32", "10.0.3.11", "red-both", ""},
		{"10.1.4.1/32", "invalid IP", "plain", ""},
		{"10.1.5.1/32", "", "other", "other: no policy has a next hop in vlan 400"},
		{"10.1.6.1/32", "", "overlay", "overlay: no policy has a next hop in vxlan 100"},
		{"10.2.0.1/32", "", "elsewhere", "elsewhere: no policy has a next hop in vlan 100"},
	}
	if diff := cmp.Diff(want, got(), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// A service in another VLAN doesn't take over the route.
	s.evaluate(in(100, "red-both", "10.1.3.1"), 0)
	want[2] = result{"10.1.3.1/32", "", "red-both", "red-both: 0 of 3 backends healthy, 1 wanted"}
	if diff := cmp.Diff(want, got(), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
