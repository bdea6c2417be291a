// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/report"
)

// reportOf is the report of a node that announces two prefixes to one router, up to version 7 of
// Services, with changes.
func reportOf(name string, change ...func(*v1alpha1.BalancerNodeStatus)) *report.Node {
	s := &v1alpha1.BalancerNodeStatus{
		Reported: metav1.Unix(1000, 0), Observed: v1alpha1.ObservedVersions{Services: "7"},
		Routes: v1alpha1.RouteCounts{Announced: 2, Sessions: 1},
		Peers:  []v1alpha1.NodePeer{{Address: "192.0.2.1", Established: true}},
	}
	for _, c := range change {
		c(s)
	}
	return report.Read(name, s)
}

func observed(version string) func(*v1alpha1.BalancerNodeStatus) {
	return func(s *v1alpha1.BalancerNodeStatus) { s.Observed.Services, s.Observed.LoadBalancers = version, version }
}

// refuses has the data plane refuse a service; omitted are failures that the report doesn't list.
func refuses(service, message string, omitted int32) func(*v1alpha1.BalancerNodeStatus) {
	return func(s *v1alpha1.BalancerNodeStatus) {
		s.Services.Failed += 1 + omitted
		s.FailedServices = append(s.FailedServices, v1alpha1.NodeProblem{Object: service, Message: message})
	}
}

func problem(object, message string) func(*v1alpha1.BalancerNodeStatus) {
	return func(s *v1alpha1.BalancerNodeStatus) {
		s.Problems = append(s.Problems, v1alpha1.NodeProblem{Object: object, Message: message})
	}
}

func dead(service, backend, message string, omitted int32) func(*v1alpha1.BalancerNodeStatus) {
	return func(s *v1alpha1.BalancerNodeStatus) {
		s.Backends.Unhealthy += 1 + omitted
		s.Unhealthy = append(s.Unhealthy, v1alpha1.UnhealthyBackend{Service: service, Backend: backend, Message: message})
	}
}

func withholds(prefix, message string, omitted int32) func(*v1alpha1.BalancerNodeStatus) {
	return func(s *v1alpha1.BalancerNodeStatus) {
		s.Routes.Withheld += 1 + omitted
		s.Withheld = append(s.Withheld, v1alpha1.WithheldRoute{Prefix: prefix, Message: message})
	}
}

// old is the report of an agent that doesn't say which objects it covers.
func old(s *v1alpha1.BalancerNodeStatus) {
	s.Reported, s.Observed = metav1.Time{}, v1alpha1.ObservedVersions{}
}

// cordoned makes a report of a node that still announces, draining of a node without routes.
func cordoned(s *v1alpha1.BalancerNodeStatus) { s.Draining = true }
func draining(s *v1alpha1.BalancerNodeStatus) {
	s.Draining, s.Routes.Announced, s.Routes.Withheld = true, 0, 2
}
func noSession(s *v1alpha1.BalancerNodeStatus)   { s.Routes.Sessions = 0 }
func withoutBGP(s *v1alpha1.BalancerNodeStatus)  { s.Routes, s.Peers = v1alpha1.RouteCounts{}, nil }
func withoutPeer(s *v1alpha1.BalancerNodeStatus) { s.Routes.Sessions, s.Peers = 0, nil } // a hook changes routes

// The conditions of a Service follow from the reports of its group's nodes. Values that a report
// lacks stay unknown.
func TestFindings(t *testing.T) {
	const healthyText, programmedText, announcedText = "BackendsHealthy: none was found dead", "Programmed: on all nodes of LoadBalancerGroup g",
		"Announced: by the nodes of LoadBalancerGroup g"
	web := served{
		owner: alloc.Owner{Kind: kindService, Namespace: "default", Name: "web"}, group: "g",
		addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}, version: "5",
	}
	var many []func(*v1alpha1.BalancerNodeStatus)
	for i := range 7 {
		many = append(many, dead("default/web/80", fmt.Sprintf("10.0.0.%d:80", i), "timeout", 0))
	}
	for name, test := range map[string]struct {
		nodes []*report.Node
		empty bool
		want  []string
	}{
		"all well":        {[]*report.Node{reportOf("n1"), reportOf("n2")}, false, []string{programmedText, healthyText, announcedText}},
		"late":            {[]*report.Node{reportOf("n1"), reportOf("n2", observed("4"))}, false, []string{healthyText, announcedText}},
		"nothing seen":    {[]*report.Node{reportOf("n1", observed(""))}, false, []string{healthyText, announcedText}},
		"an old agent":    {[]*report.Node{reportOf("n1"), reportOf("n2", old)}, false, []string{healthyText, announcedText}},
		"another's fault": {[]*report.Node{reportOf("n1", refuses("default/web2/80", "full", 0), dead("flb:default/web/80", "10.0.0.1:80", "x", 0))}, false, []string{programmedText, healthyText, announcedText}},
		"refused": {[]*report.Node{reportOf("n1"), reportOf("n2", refuses("default/web/http/ipv6", "full", 0))}, false, []string{
			"!NotProgrammed: n2: full", healthyText, announcedText,
		}},
		"refused and late": {[]*report.Node{reportOf("n1", observed("4")), reportOf("n2", refuses("default/web/http", "full", 0))}, false, []string{
			"!NotProgrammed: n2: full; n1: not yet", healthyText, announcedText,
		}},
		"problem": {[]*report.Node{reportOf("n1", problem("Service default/web", "bad range"))}, false, []string{"!NotProgrammed: n1: bad range", healthyText, announcedText}},
		"lists that are too long": {
			[]*report.Node{reportOf("n1", refuses("default/a/80", "full", 1), dead("default/a/80", "10.0.0.1:80", "x", 1), withholds("192.0.2.99/32", "no backend", 1))},
			false, nil,
		},
		"another namespace's lists are full": {
			[]*report.Node{reportOf("n1", refuses("a/a/80", "full", 0), refuses("a/b/80", "full", 3000), dead("a/a/80", "10.0.0.1:80", "x", 0), dead("a/a/80", "10.0.0.2:80", "x", 3000))},
			false,
			[]string{programmedText, healthyText, announcedText},
		},
		"dead everywhere": {
			[]*report.Node{reportOf("n1", dead("default/web/80", "10.0.0.1:80", "timeout", 0), dead("default/web/81", "10.0.0.1:80", "timeout", 0)), reportOf("n2", dead("default/web/80", "10.0.0.1:80", "", 0))},
			false,
			[]string{programmedText, "!BackendsDead: 10.0.0.1:80: timeout", announcedText},
		},
		"dead for one": {[]*report.Node{reportOf("n1"), reportOf("n2", dead("default/web/80", "10.0.0.1:80", "timeout", 9))}, false, []string{
			programmedText, "!BackendsDead: 10.0.0.1:80 on n2: timeout", announcedText,
		}},
		"many dead": {[]*report.Node{reportOf("n1", many...)}, false, []string{
			programmedText,
			"!BackendsDead: 10.0.0.0:80: timeout; 10.0.0.1:80: timeout; 10.0.0.2:80: timeout; 10.0.0.3:80: timeout; 10.0.0.4:80: timeout; 2 more", announcedText,
		}},
		"withheld everywhere": {
			[]*report.Node{reportOf("n1", withholds("192.0.2.10/32", "no backend", 0)), reportOf("n2", withholds("2001:db8::/64", "drained", 0))},
			false,
			[]string{programmedText, healthyText, "!NotAnnounced: n1: no backend; n2: drained"},
		},
		"withheld by one": {[]*report.Node{reportOf("n1", withholds("192.0.2.10/32", "no backend", 0)), reportOf("n2"), reportOf("n3", withoutBGP)}, false, []string{
			programmedText, healthyText, "PartlyAnnounced: not by n1: no backend",
		}},
		"a node that drains": {[]*report.Node{reportOf("n1", draining), reportOf("n2")}, false, []string{programmedText, healthyText, announcedText}},
		"cordoned":           {[]*report.Node{reportOf("n1", cordoned), reportOf("n2", noSession)}, false, []string{programmedText, healthyText, announcedText}},
		"no session": {[]*report.Node{reportOf("n1", draining), reportOf("n2", noSession)}, false, []string{
			programmedText, healthyText, "!NotAnnounced: n1: draining; n2: no session with a router",
		}},
		"routes by a program": {[]*report.Node{reportOf("n1", withoutPeer)}, false, []string{programmedText, healthyText, announcedText}},
		"no routes":           {[]*report.Node{reportOf("n1", withoutBGP)}, false, []string{programmedText, healthyText}},
		"no listener":         {[]*report.Node{reportOf("n1")}, true, []string{programmedText, healthyText, "!NotAnnounced: no listener"}},
		"no report":           {nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			web.empty = test.empty
			r := &reportReconciler{deps: &deps{}}
			r.find([]served{web}, map[string][]*report.Node{"g": test.nodes}, time.Unix(1000, 0))
			var got []string
			for _, c := range r.findings.of(web.owner) {
				text := c.Reason + ": " + c.Message
				if c.Status != "True" {
					text = "!" + text
				}
				got = append(got, text)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// A change is programmed once all nodes have reported its version. Until then the condition stays as
// it is, for a while; a version that changes nothing for agents isn't waited for.
func TestFindingsDuringChange(t *testing.T) {
	r := &reportReconciler{deps: &deps{}}
	now := time.Unix(1000, 0)
	web := served{owner: alloc.Owner{Kind: kindService, Namespace: "default", Name: "web"}, group: "g", version: "7", content: "port 80", observed: none}
	find := func(seen string) (reason string, next time.Duration) {
		next = r.find([]served{web}, map[string][]*report.Node{"g": {reportOf("n1", observed("99")), reportOf("n2", observed(seen))}}, now)
		for _, c := range r.findings.of(web.owner) {
			if c.Type == v1alpha1.ConditionProgrammed {
				return c.Reason, next
			}
		}
		return "", next
	}
	check := func(what, seen, want string, wantNext time.Duration) {
		t.Helper()
		if got, next := find(seen); got != want || next != wantNext {
			t.Errorf("%s: condition %q, again in %v; want %q, %v", what, got, next, want, wantNext)
		}
	}
	check("a node has it", "7", "Programmed", 0)
	web.version = "8"
	check("only the status has changed", "7", "Programmed", 0)
	web.version, web.content = "10", "port 81"
	check("a change", "9", "", programGrace)
	now = now.Add(programGrace / 4)
	web.version = "11"
	check("its status", "9", "", programGrace*3/4)
	check("a report between the change and its status", "10", "Programmed", 0)
	check("an older report", "9", "", programGrace*3/4)
	now = now.Add(programGrace)
	check("too late", "9", "NotProgrammed", 0)
	check("at last", "12", "Programmed", 0)
}

// A condition has the object's generation that the reports cover, so a change is written as soon as
// they cover it. Conditions of a new object are unknown until then.
func TestFindingGenerations(t *testing.T) {
	r := &reportReconciler{deps: &deps{}}
	now := time.Unix(1000, 0)
	shop := served{owner: alloc.Owner{Kind: kindLoadBalancer, Namespace: "web", Name: "shop"}, group: "g", version: "7", generation: 1, observed: none}
	check := func(what, seen, want string) {
		t.Helper()
		node := reportOf("n1", observed(seen))
		r.find([]served{shop}, map[string][]*report.Node{"g": {node}}, now)
		var got []string
		for _, c := range r.findings.of(shop.owner) {
			got = append(got, fmt.Sprintf("%s %d", c.Type, c.ObservedGeneration))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		pending := want != "" && !strings.HasPrefix(want, "Programmed")
		if r.findings.await(shop.owner, shop.generation) != pending {
			t.Errorf("%s: reports are awaited: %t", what, !pending)
		}
	}
	check("a new object", "6", "")
	check("reported", "7", "Programmed 1, BackendsHealthy 1, Announced 1")
	shop.version, shop.generation, shop.content = "8", 2, "changed"
	check("a change", "7", "BackendsHealthy 1, Announced 1")
	r = &reportReconciler{deps: &deps{}}
	shop.observed = 1
	check("after a restart of the controller", "7", "BackendsHealthy 1, Announced 1")
	check("the change, reported", "8", "Programmed 2, BackendsHealthy 2, Announced 2")
	shop.version, shop.generation, shop.content = "9", 3, "changed again"
	now = now.Add(time.Second)
	check("another change", "8", "BackendsHealthy 2, Announced 2")
	now = now.Add(programGrace)
	check("too late", "8", "Programmed 3, BackendsHealthy 3, Announced 3")
}

// An object that is created again under its name gets no condition before nodes have reported it.
func TestFindingsOfRecreatedObject(t *testing.T) {
	r := &reportReconciler{deps: newDeps(Options{})}
	now := time.Unix(1000, 0)
	conditions := func(b *v1alpha1.LoadBalancer, reported string) []metav1.Condition {
		b.Status.Address, b.Status.Group = "192.0.2.10", "web"
		object, _ := servedBalancer(b)
		r.find([]served{object}, map[string][]*report.Node{"web": {reportOf("a", observed(reported))}}, now)
		return r.findings.of(object.owner)
	}
	former := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", ResourceVersion: "7", Generation: 5}}
	if got := conditions(former, "7"); len(got) == 0 || got[0].ObservedGeneration != 5 {
		t.Fatalf("conditions %+v, want those of generation 5", got)
	}
	again := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "2", ResourceVersion: "9", Generation: 1}}
	if got := conditions(again, "7"); len(got) != 0 {
		t.Errorf("conditions %+v before a report, want none", got)
	}
	if got := conditions(again, "9"); len(got) == 0 || got[0].ObservedGeneration != 1 {
		t.Errorf("conditions %+v, want those of generation 1", got)
	}
}
