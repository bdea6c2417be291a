// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/test/fake"
	"fairlead.io/fairlead/test/golden"
)

var (
	started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web     = fake.VIP("10.1.1.1")
	dns     = lb.VIP{Address: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: lb.UDP, Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 100}}
)

func TestServiceTable(t *testing.T) {
	busy := observe.Service{
		Name: "web", VIP: web, Forward: lb.L2DSR, Programmed: true, Backends: 4, BackendsInUse: 4, BackendsHealthy: 4,
		Traffic: dataplane.Traffic{Packets: 1234567, Bytes: 1 << 30},
		Rate:    observe.Rate{PacketsPerSecond: 3.5e6, BytesPerSecond: 1.25e9},
	}
	variant := func(name string, change func(*observe.Service)) observe.Service {
		s := busy
		s.Name, s.Traffic, s.Rate = name, dataplane.Traffic{}, observe.Rate{}
		change(&s)
		return s
	}
	list := []observe.Service{
		busy,
		variant("degraded", func(s *observe.Service) { s.BackendsInUse = 3; s.VIP = dns; s.Forward = lb.IPIP }),
		variant("drained", func(s *observe.Service) { s.BackendsInUse = 3; s.BackendsDrained = 1 }),
		variant("all-drained", func(s *observe.Service) { s.BackendsInUse = 0; s.BackendsDrained = 4 }),
		variant("empty", func(s *observe.Service) { s.Backends, s.BackendsInUse, s.BackendsHealthy = 0, 0, 0 }),
		variant("sick", func(s *observe.Service) { s.BackendsInUse, s.BackendsHealthy = 2, 3 }),
		variant("panicking", func(s *observe.Service) { s.BackendsHealthy = 1; s.Panic = true }),
		variant("draining", func(s *observe.Service) { s.BackendsInUse, s.BackendsDrained, s.Drained = 0, 4, true }),
		variant("new", func(s *observe.Service) { s.Programmed = false }),
		variant("second", func(s *observe.Service) { s.DataPlane, s.DataPlaneReason = "ipvs", "scheduler: not with xdp" }),
		variant("broken", func(s *observe.Service) { s.Programmed = false; s.Error = "no room" }),
		variant("leaving", func(s *observe.Service) { s.Deleting = true; s.Forward = 0 }),
		variant("stuck", func(s *observe.Service) { s.Deleting = true; s.Forward = 0; s.Error = "busy\nfull" }),
	}
	golden.File(t, "testdata/services.txt", observe.FormatServices(list))
}

func TestBackendTable(t *testing.T) {
	list := []observe.Backend{
		{
			Service: "web", VIP: web, Address: netip.MustParseAddr("10.0.0.21"), Port: 80, Weight: 1, InUse: true,
			Health:  observe.Health{State: observe.HealthHealthy},
			NextHop: "eth0 02:00:00:00:00:01", Share: 1, Traffic: dataplane.Traffic{Packets: 7}, Rate: observe.Rate{PacketsPerSecond: 0.5},
		},
		{Service: "web", VIP: web, Address: netip.MustParseAddr("10.0.0.22"), Port: 80, Weight: 1, Reason: "no route",
			Health: observe.Health{State: observe.HealthUnchecked}},
		{Service: "web", VIP: web, Address: netip.MustParseAddr("10.0.0.23"), Port: 80, Weight: 1, Reason: "unhealthy",
			Health: observe.Health{State: observe.HealthUnhealthy, Reason: "connection refused"}},
		{Service: "dns", VIP: dns, Address: netip.MustParseAddr("fd00::2"), Port: 53, InUse: true, Reason: "no longer desired"},
	}
	golden.File(t, "testdata/backends.txt", observe.FormatBackends(list))
}

func TestStatusTable(t *testing.T) {
	status := observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", PID: 12, Started: started, Listen: "127.0.0.1:9571",
		Config: source.File{
			Path: "/etc/fairlead/fairlead.yaml", Digest: "0123456789abcdef0123", Loaded: started.Add(time.Minute),
			Error: "fairlead.yaml:3:1: bad\nfairlead.yaml:9:1: worse", Refused: started.Add(50 * time.Minute),
		},
		Revision: 5,
		DataPlane: observe.DataPlane{Kind: "xdp", FilterPods: true, Attachments: []observe.Attachment{
			{Interface: "eth0", Mode: "native", Adopted: true},
			{Interface: "eth1", Mode: "generic", Reason: "the driver has no XDP"},
		}},
		Draining: true, DrainingSince: started.Add(59 * time.Minute),
		Services: v1alpha1.ServiceCounts{Total: 3, Programmed: 2, Failed: 1, Panic: 1},
		Backends: v1alpha1.BackendCounts{Total: 12, InUse: 11, Unhealthy: 1, Drained: 2},
		BGP:      observe.RouteSummary{Enabled: true, ASN: 65021, Peers: 3, RouteCounts: v1alpha1.RouteCounts{Announced: 4, Withheld: 1, Sessions: 2}},
		Exits: []observe.Exit{
			{Name: "forward_l2dsr", Packets: 123456, PacketsPerSecond: 1234},
			{Name: "pass_not_ip", Packets: 0},
			{Name: "pass_not_vip", Packets: 1},
		},
	}
	status.APIServer = &source.State{
		Server: "https://api:9575", Since: started.Add(time.Minute), Error: "https://api:9575: connection refused", Restored: started,
	}
	golden.File(t, "testdata/status.txt", observe.FormatStatus(status, started.Add(time.Hour)))
}

// In a container the process has no number worth a word, and one thing is singular.
func TestStatusOfPod(t *testing.T) {
	status := observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", PID: 1, Started: started,
		Config:    source.File{Path: "/etc/fairlead/fairlead.yaml", Digest: "0123456789abcdef0123", Loaded: started},
		DataPlane: observe.DataPlane{Kind: "ipvs", Reason: "data plane xdp: no BPF"},
		Kubernetes: &source.State{
			Server: "https://10.96.0.1:443", Reachable: true, Since: started, Synced: started, Objects: 1,
			Problems: []v1alpha1.NodeProblem{{Object: "Service default/web", Message: "no endpoints"}},
		},
		FollowedBackends: []source.FollowedBackends{
			{Service: "web", From: "Service web, port http", Backends: 3, Answered: started.Add(59 * time.Minute), Problems: []string{"endpoint 10.244.1.2 is this balancer itself"}},
			{Service: "api", From: "SRV records of api.example", Backends: 2, Answered: started, Error: "DNS server 10.0.0.53:53: SRV api.example.: i/o timeout"},
			{Service: "new", From: "addresses of new.example", Error: "new.example.: no such name", Awaited: true},
		},
	}
	golden.File(t, "testdata/status_pod.txt", observe.FormatStatus(status, started.Add(time.Hour)))
}
