// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/golden"
)

const unreachable = "pod fairlead-agent-x: CrashLoopBackOff"

// One service differs on a node, one is on other nodes, and one has failed everywhere.
func TestClusterServices(t *testing.T) {
	service := func(name string, vip lb.VIP, change func(*observe.Service)) observe.Service {
		s := observe.Service{
			Name: name, VIP: vip, Forward: lb.DSR, Programmed: true, Backends: 3, BackendsInUse: 3, BackendsHealthy: 3,
			Traffic: dataplane.Traffic{Packets: 1000}, Rate: observe.Rate{PacketsPerSecond: 10, BytesPerSecond: 1000},
		}
		change(&s)
		return s
	}
	same := func(*observe.Service) {}
	one, two, three := web, web, web
	two.Port, three.Port = 81, 82
	full := func(s *observe.Service) { s.Programmed, s.Error = false, "table full\nno room" }
	golden.File(t, "testdata/cluster_services.txt", observe.FormatClusterServices([]observe.Node[[]observe.Service]{
		{Name: "n1", Answer: []observe.Service{service("web", one, same), service("full", three, full)}},
		{Name: "n2", Answer: []observe.Service{
			service("web", one, func(s *observe.Service) { s.BackendsInUse, s.BackendsHealthy = 2, 2 }), service("api", two, same), service("full", three, full),
		}},
		{Name: "n3", Answer: []observe.Service{service("web", one, same), service("api", two, func(s *observe.Service) { s.Programmed = false })}},
		{Name: "n4", Answer: []observe.Service{}},
		{Name: "n5", Error: unreachable},
		{Name: "n6", Error: "no agent at /run/fairlead/agent.sock:\nconnect: no such file or directory"},
	}))
	golden.File(t, "testdata/cluster_nothing.txt", observe.FormatClusterServices([]observe.Node[[]observe.Service]{{Name: "n1"}}))
}

func TestClusterBackends(t *testing.T) {
	backend := func(address string, change func(*observe.Backend)) observe.Backend {
		b := observe.Backend{
			Service: "web", VIP: web, Address: netip.MustParseAddr(address), Port: 80, Weight: 1, InUse: true,
			Health: observe.Health{State: observe.HealthHealthy}, Traffic: dataplane.Traffic{Packets: 5},
		}
		change(&b)
		return b
	}
	same := func(*observe.Backend) {}
	dead := func(b *observe.Backend) {
		b.InUse, b.Reason, b.Health = false, "unhealthy", observe.Health{State: observe.HealthUnhealthy, Reason: "connection refused"}
	}
	golden.File(t, "testdata/cluster_backends.txt", observe.FormatClusterBackends([]observe.Node[[]observe.Backend]{
		{Name: "n1", Answer: []observe.Backend{backend("10.0.0.21", same), backend("10.0.0.22", dead), backend("10.0.0.23", dead)}},
		{Name: "n2", Answer: []observe.Backend{backend("10.0.0.21", same), backend("10.0.0.22", same), backend("10.0.0.23", dead)}},
		{Name: "n3", Answer: []observe.Backend{backend("10.0.0.21", func(b *observe.Backend) { b.Weight = 2 }), backend("10.0.0.22", same)}},
		{Name: "n4", Error: unreachable},
	}))
}

func TestClusterStatus(t *testing.T) {
	status := func(change func(*observe.Status)) observe.Status {
		s := observe.Status{
			Version: "0.1.0", Started: started, DataPlane: observe.DataPlane{Kind: "xdp"},
			Kubernetes: &source.State{Reachable: true, Synced: started},
			Services:   v1alpha1.ServiceCounts{Total: 2, Programmed: 2}, Backends: v1alpha1.BackendCounts{Total: 6, InUse: 6},
			BGP: observe.RouteSummary{Enabled: true, Peers: 2, RouteCounts: v1alpha1.RouteCounts{Announced: 2, Sessions: 2}},
		}
		change(&s)
		return s
	}
	golden.File(t, "testdata/cluster_status.txt", observe.FormatClusterStatus([]observe.Node[observe.Status]{
		{Name: "n1", Answer: status(func(*observe.Status) {})},
		{Name: "n2", Answer: status(func(s *observe.Status) {
			s.Draining, s.DrainingSince, s.BGP.RouteCounts = true, started.Add(59*time.Minute), v1alpha1.RouteCounts{Withheld: 2, Sessions: 2}
		})},
		{Name: "n3", Error: unreachable},
		{Name: "n4", Answer: status(func(s *observe.Status) {
			s.Kubernetes = &source.State{Since: started, Error: "i/o timeout", Restored: started, Problems: make([]v1alpha1.NodeProblem, 2)}
			s.Services = v1alpha1.ServiceCounts{Total: 4, Programmed: 1, Failed: 1, Panic: 1, Drained: 1}
			s.Backends = v1alpha1.BackendCounts{Total: 6, InUse: 3, Unhealthy: 2, Drained: 1}
		})},
		{Name: "n5", Answer: status(func(s *observe.Status) {
			s.Kubernetes.Synced = time.Time{}
			s.FollowedBackends = []source.FollowedBackends{{Service: "web", Answered: started}, {Service: "api", Error: "no response"}}
			s.Config.Error, s.DataPlane.Reason = "a.yaml:3:1: bad\na.yaml:9:1: worse", "eth0: the driver has no XDP"
		})},
	}, started.Add(time.Hour)))
}

// A node of another group has other prefixes, and one has lost its session.
func TestClusterRoutes(t *testing.T) {
	router := netip.MustParseAddr("172.30.0.254")
	prefix := func(text, reason string) observe.Announcement {
		return observe.Announcement{
			Prefix: netip.MustParsePrefix(text), Services: []string{"web"}, Announced: reason == "", Reason: reason, Peers: []netip.Addr{router},
		}
	}
	routes := func(state bgp.SessionState, reason string, list ...observe.Announcement) observe.Routes {
		return observe.Routes{Enabled: true, ASN: 65021, Announcements: list, Peers: []bgp.PeerState{
			{Address: router, ASN: 65000, State: state, Reason: reason, Since: started, BFD: bgp.BFDUp, RoutesAnnounced: uint64(len(list))},
		}}
	}
	golden.File(t, "testdata/cluster_routes.txt", observe.FormatClusterRoutes([]observe.Node[observe.Routes]{
		{Name: "n1", Answer: routes(bgp.Established, "", prefix("10.1.1.1/32", ""), prefix("10.1.1.2/32", "web: drained"))},
		{Name: "n2", Answer: routes(bgp.Established, "", prefix("10.1.1.1/32", "web: 0 of 3 backends healthy, 1 wanted"), prefix("10.1.1.2/32", "web: drained"))},
		{Name: "n3", Answer: routes(bgp.Established, "", prefix("10.1.1.1/32", ""))},
		{Name: "n4", Answer: routes(bgp.Idle, "connection refused", prefix("fd00::1/128", ""))},
		{Name: "n5", Error: unreachable},
	}, started.Add(time.Hour)))
	golden.File(t, "testdata/cluster_no_peers.txt", observe.FormatClusterRoutes([]observe.Node[observe.Routes]{{Name: "n1"}}, started))
}

func TestClusterFlows(t *testing.T) {
	flow := observe.Flow{Service: "web", Flow: dataplane.Flow{VIP: web, Client: netip.MustParseAddrPort("192.0.2.7:41000"), Backend: id1, Age: 3 * time.Second}}
	left := flow
	left.Backend = lb.BackendID{}
	tracking := dataplane.Tracking{Unstable: 1, Hits: 2, Misses: 3, Inserts: 4, Unrecorded: 5, Evictions: 6}
	golden.File(t, "testdata/cluster_flows.txt", observe.FormatClusterFlows([]observe.Node[observe.Flows]{
		{Name: "n1", Answer: observe.Flows{Flows: []observe.Flow{flow, left}, Matching: 9, Records: 20, Capacity: 1024, Tracking: tracking}},
		{Name: "n2", Answer: observe.Flows{Capacity: 1024}},
		{Name: "n3", Error: unreachable},
	}))
}

func TestClusterDrains(t *testing.T) {
	drain := observe.Drain{Drain: store.Drain{Target: store.Target{Service: "web"}, Since: started}, Desired: true, Flows: 2, PacketsPerSecond: 8}
	node := observe.Drain{Drain: store.Drain{Since: started}, Desired: true}
	golden.File(t, "testdata/cluster_drains.txt", observe.FormatClusterDrains([]observe.Node[[]observe.Drain]{
		{Name: "n1", Answer: []observe.Drain{node, drain}},
		{Name: "n2", Answer: []observe.Drain{drain}},
		{Name: "n3", Error: unreachable},
	}))
}

// Nodes that do the same with a packet are shown once.
func TestClusterTraces(t *testing.T) {
	sent := observe.Trace{Reason: "sent", Service: "web", Trace: dataplane.Trace{Exit: "forward_dsr", VIP: web, Found: true}}
	passed := observe.Trace{Reason: "passed to the kernel", Trace: dataplane.Trace{Exit: "pass_not_vip"}}
	golden.File(t, "testdata/cluster_traces.txt", observe.FormatClusterTraces("tcp 192.0.2.7:41000 > 10.1.1.1:80 syn", []observe.Node[[]observe.Trace]{
		{Name: "n1", Answer: []observe.Trace{sent}},
		{Name: "n2", Answer: []observe.Trace{passed}},
		{Name: "n3", Answer: []observe.Trace{sent}},
		{Name: "n4", Error: unreachable},
		{Name: "n5", Answer: []observe.Trace{{Error: "no program"}}},
	}))
}
