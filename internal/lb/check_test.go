// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/lb"
)

// valid returns a valid service, of which each test changes one thing.
func valid() *lb.Service {
	return &lb.Service{
		Name:       "web",
		VIP:        lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP},
		Forward:    lb.L2DSR,
		MinHealthy: 1,
		Health: &lb.HealthCheck{
			Type: lb.HealthHTTP, Path: "/healthz", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
		},
		Backends: []lb.Backend{
			{Address: netip.MustParseAddr("10.0.0.21"), Port: 80, Weight: 1},
			{Address: netip.MustParseAddr("fd00::22"), Port: 80, Weight: lb.MaxWeight},
		},
	}
}

// overlay makes the service one of a mode that delivers in segments.
func overlay(s *lb.Service, forward lb.Forward) {
	s.Forward, s.Backends = forward, s.Backends[:1]
	b := &s.Backends[0]
	b.TunnelEnd, b.MAC = netip.MustParseAddr("fd00:2::21"), lb.MAC{2, 0, 0, 0, 0, 1}
	b.Segment = lb.Segment{Type: forward.Overlay(), ID: 5001}
}

// checkTest is a change of a valid service, and the errors of Check.
type checkTest struct {
	change func(s *lb.Service)
	want   []string
}

// in makes a service one of a mode, with one backend of the VIP's family, before a change.
func in(forward lb.Forward, change func(*lb.Service)) func(*lb.Service) {
	return func(s *lb.Service) {
		s.Forward, s.Backends = forward, s.Backends[:1]
		change(s)
	}
}

func testCheck(t *testing.T, valid func() *lb.Service, tests map[string]checkTest) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := valid()
			test.change(s)
			var got []string
			for _, e := range s.Check() {
				got = append(got, e.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	addr := netip.MustParseAddr
	testCheck(t, valid, map[string]checkTest{
		"valid":               {func(*lb.Service) {}, nil},
		"no backends":         {func(s *lb.Service) { s.Backends = nil }, nil},
		"backend of weight 0": {func(s *lb.Service) { s.Backends[0].Weight = 0 }, nil},
		"vlan":                {func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 4094} }, nil},
		"untagged backend":    {func(s *lb.Service) { s.Backends[0].Segment.Type = lb.SegmentNone }, nil},
		"nat to another port": {in(lb.NAT, func(s *lb.Service) { s.Backends[0].Port = 8080 }), nil},
		"dsr to another node": {in(lb.DSR, func(s *lb.Service) { s.Backends[0].Port, s.Backends[0].Node = 8080, addr("fd00::11") }),
			nil},
		"dsr to the VIP's node": {in(lb.DSR, func(s *lb.Service) { s.Backends[0].Node = s.Address }),
			[]string{"backends[0].node: 10.1.1.1 is the VIP itself"}},
		"nat to another node": {in(lb.NAT, func(s *lb.Service) { s.Backends[0].Node = addr("10.0.0.11") }),
			[]string{"backends[0].node: only with dsr: nat forwards no packets to nodes"}},
		"dsr to no node": {func(s *lb.Service) {
			s.Forward, s.Backends, s.Backends[0].Outside = lb.DSR, s.Backends[:1], true
		}, nil},
		"dsr to no node's node": {in(lb.DSR, func(s *lb.Service) { s.Backends[0].Node, s.Backends[0].Outside = addr("10.0.0.11"), true }),
			[]string{"backends[0].outside: not with node, which is 10.0.0.11"}},
		"nat to no node": {func(s *lb.Service) {
			s.Forward, s.Backends, s.Backends[0].Outside = lb.NAT, s.Backends[:1], true
		}, []string{"backends[0].outside: only with dsr, this service has nat"}},
		"dsr with passive checks": {func(s *lb.Service) {
			s.Forward, s.Backends, s.Health.Passive = lb.DSR, s.Backends[:1], true
		}, []string{"health.passive: only with nat: with dsr the balancer doesn't see responses"}},
		"dsr for other nodes": {func(s *lb.Service) {
			s.Forward, s.Unannounced, s.Backends = lb.DSR, true, s.Backends[:1]
		}, nil},
		"dsr by nodes": {func(s *lb.Service) {
			s.Forward, s.Balancers, s.Backends = lb.DSR, []netip.Addr{netip.MustParseAddr("10.0.0.11"), {}}, s.Backends[:1]
		}, []string{"balancers[1]: no address"}},
		"l2dsr by nodes": {func(s *lb.Service) { s.Balancers = []netip.Addr{netip.MustParseAddr("10.0.0.11")} },
			[]string{"balancers: only with dsr: want none with l2dsr"}},
		"l2dsr for other nodes": {func(s *lb.Service) { s.Unannounced = true },
			[]string{"unannounced: only with dsr: no node forwards packets of l2dsr"}},
		"nat to the other family": {func(s *lb.Service) { s.Forward = lb.NAT },
			[]string{"backends[1].address: fd00::22 is not of the VIP's family: nat translates within IPv4 or IPv6"}},
		"nat in a vxlan segment": {func(s *lb.Service) {
			s.Forward, s.Backends, s.Segment = lb.NAT, s.Backends[:1], lb.Segment{Type: lb.SegmentVXLAN, ID: 7}
		}, []string{"segment.type: nat serves no clients in vxlan segments: want vlan, or no segment"}},
		"same address, other port": {func(s *lb.Service) {
			s.Forward = lb.NAT
			s.Backends[1] = lb.Backend{Address: s.Backends[0].Address, Port: 81}
		}, nil},

		"no name":    {func(s *lb.Service) { s.Name = "" }, []string{"name: no name"}},
		"bad name":   {func(s *lb.Service) { s.Name = "a b" }, []string{`name: bad name "a b": want printable characters without spaces`}},
		"long name":  {func(s *lb.Service) { s.Name = strings.Repeat("a", 401) }, []string{"name: 401 bytes are too long: want at most 400"}},
		"no address": {func(s *lb.Service) { s.Address = netip.Addr{} }, []string{"address: no address"}},
		"mapped": {func(s *lb.Service) { s.Address = addr("::ffff:10.1.1.1") },
			[]string{"address: ::ffff:10.1.1.1 is an IPv4-mapped IPv6 address: write 10.1.1.1"}},
		"zone":        {func(s *lb.Service) { s.Address = addr("fe80::1%eth0") }, []string{"address: fe80::1%eth0 has a zone: want an address without one"}},
		"unspecified": {func(s *lb.Service) { s.Address = addr("::") }, []string{"address: :: is the unspecified address: want a unicast address"}},
		"loopback":    {func(s *lb.Service) { s.Address = addr("127.0.0.9") }, []string{"address: 127.0.0.9 is a loopback address: want one that others can reach"}},
		"multicast":   {func(s *lb.Service) { s.Address = addr("ff02::1") }, []string{"address: ff02::1 is a multicast address: want a unicast address"}},
		"broadcast":   {func(s *lb.Service) { s.Address = addr("255.255.255.255") }, []string{"address: 255.255.255.255 is the broadcast address: want a unicast address"}},
		"no port":     {func(s *lb.Service) { s.Port = 0 }, []string{"port: 0 is out of range: want 1 to 65535"}},
		"protocol":    {func(s *lb.Service) { s.Protocol = 132 }, []string{`protocol: unknown protocol "unknown(132)": want one of tcp, udp`}},
		"forward": {func(s *lb.Service) { s.Forward = 0 },
			[]string{`forward: unknown forwarding mode "unknown(0)": want one of l2dsr, ipip, gue, vxlan, geneve, nat, dsr`}},
		"remembered": {func(s *lb.Service) { s.Affinity, s.AffinityTimeout = lb.AffinityClient, lb.MaxAffinityTimeout }, nil},
		"too long":   {func(s *lb.Service) { s.Affinity, s.AffinityTimeout = lb.AffinityClient, 8*24*time.Hour }, []string{"affinityTimeout: 192h0m0s is out of range: want 1s to 168h0m0s"}},
		"too short":  {func(s *lb.Service) { s.Affinity, s.AffinityTimeout = lb.AffinityClient, time.Millisecond }, []string{"affinityTimeout: 1ms is out of range: want 1s to 168h0m0s"}},
		"no clients": {func(s *lb.Service) { s.AffinityTimeout = time.Hour }, []string{"affinityTimeout: only with affinity client, this service has flow"}},
		"scheduler":  {func(s *lb.Service) { s.Scheduler = 9 }, []string{`scheduler: unknown scheduler "unknown(9)": want one of maglev, rr, wrr, lc, wlc, sh`}},
		"quic in turn": {func(s *lb.Service) {
			s.Protocol, s.Affinity, s.QUIC, s.Scheduler = lb.UDP, lb.AffinityQUIC, &lb.QUIC{ServerIDLength: 2, NonceLength: 8}, lb.SchedulerRR
		}, []string{"scheduler: rr can't read connection IDs: want maglev with affinity quic"}},
		"connections": {func(s *lb.Service) { s.Backends[0].MaxConnections = -1 }, []string{"backends[0].maxConnections: -1 is out of range: want 0 to 2147483647"}},
		"affinity":    {func(s *lb.Service) { s.Affinity = 7 }, []string{`affinity: unknown affinity "unknown(7)": want one of flow, client, quic`}},
		"unavailable": {func(s *lb.Service) { s.Unavailable = 7 }, []string{`unavailable: unknown policy "unknown(7)": want one of drop, reject`}},

		"segment none": {func(s *lb.Service) { s.Segment.Type = lb.SegmentNone }, []string{"segment.type: a service of the untagged network has no segment"}},
		"segment id without type": {func(s *lb.Service) { s.Segment.ID = 5 },
			[]string{"segment.id: 5 names no segment: want none without type vlan, vxlan or geneve"}},
		"vlan 0":       {func(s *lb.Service) { s.Segment.Type = lb.SegmentVLAN }, []string{"segment.id: 0 is out of range: want 1 to 4094"}},
		"vlan 4095":    {func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 4095} }, []string{"segment.id: 4095 is out of range: want 1 to 4094"}},
		"geneve":       {func(s *lb.Service) { s.Segment = lb.Segment{Type: lb.SegmentGeneve, ID: 1 << 24} }, []string{"segment.id: 16777216 is out of range: want 1 to 16777215"}},
		"segment type": {func(s *lb.Service) { s.Segment.Type = 9 }, []string{`segment.type: unknown segment type "unknown(9)": want one of none, vlan, vxlan, geneve`}},

		"minHealthy 0": {func(s *lb.Service) { s.MinHealthy = 0 }, []string{"minHealthy: 0 is out of range: want at least 1"}},

		"sources": {func(s *lb.Service) {
			s.Sources = lb.Sources{Allow: prefixes("10.0.0.0/8 10.0.0.0/9"), Deny: prefixes("10.0.0.0/8 0.0.0.0/0")}
		}, nil},
		"bad sources": {func(s *lb.Service) {
			s.Sources = lb.Sources{Allow: append(prefixes("10.0.0.0/8 fd00::/8 10.0.0.1/8 10.0.0.0/8"), netip.Prefix{}), Deny: prefixes("::ffff:10.0.0.0/104")}
		}, []string{
			"sources.allow[1]: prefix fd00::/8 is not of the same family as the VIP 10.1.1.1",
			"sources.allow[2]: prefix 10.0.0.1/8 has host bits set: write 10.0.0.0/8",
			"sources.allow[3]: 10.0.0.0/8 is also sources.allow[0]",
			"sources.allow[4]: no prefix",
			"sources.deny[0]: prefix ::ffff:10.0.0.0/104 is of IPv4-mapped IPv6 addresses: write it as IPv4"}},
		"many sources": {func(s *lb.Service) { s.Sources.Deny = make([]netip.Prefix, lb.MaxSources+1) },
			[]string{"sources: 4097 prefixes are too many: want at most 4096"}},

		"limits": {func(s *lb.Service) { s.Limits = lb.FlowLimits{NewFlows: -1, NewFlowsPerSource: lb.MaxNewFlows + 1} }, []string{
			"limits.newFlows: -1 is out of range: want 0 to 10000000",
			"limits.newFlowsPerSource: 10000001 is out of range: want 0 to 10000000"}},

		"duplicate backend": {func(s *lb.Service) { s.Backends[1].Address = s.Backends[0].Address }, []string{"backends[1].address: 10.0.0.21:80 is also backends[0]"}},
		"VIP as backend":    {func(s *lb.Service) { s.Backends[1].Address = s.Address }, []string{"backends[1].address: 10.1.1.1 is the VIP itself"}},
		"backend address":   {func(s *lb.Service) { s.Backends[1].Address = addr("::1") }, []string{"backends[1].address: ::1 is a loopback address: want one that others can reach"}},
		"backend port 0":    {func(s *lb.Service) { s.Backends[0].Port = 0 }, []string{"backends[0].port: 0 is out of range: want 1 to 65535"}},
		"backend port": {func(s *lb.Service) { s.Backends[0].Port = 8080 },
			[]string{"backends[0].port: 8080 differs from the service's port 80, which l2dsr doesn't translate"}},
		"monitor": {func(s *lb.Service) {
			s.Backends[0].MonitorAddress, s.Backends[0].MonitorPort = addr("fd00:9::21"), 9100
		}, nil},
		"monitor at the VIP": {func(s *lb.Service) { s.Backends[0].MonitorAddress = s.Address },
			[]string{"backends[0].monitorAddress: 10.1.1.1 is the VIP itself"}},
		"monitor at loopback": {func(s *lb.Service) { s.Backends[1].MonitorAddress = addr("127.0.0.1") },
			[]string{"backends[1].monitorAddress: 127.0.0.1 is a loopback address: want one that others can reach"}},
		"weights": {func(s *lb.Service) { s.Backends[0].Weight, s.Backends[1].Weight = -1, 300 }, []string{
			"backends[0].weight: -1 is out of range: want 0 to 256",
			"backends[1].weight: 300 is out of range: want 0 to 256"}},
		"vxlan": {func(s *lb.Service) { overlay(s, lb.VXLAN) }, nil},
		"vxlan, in the service's segment": {func(s *lb.Service) {
			overlay(s, lb.VXLAN)
			s.Segment, s.Backends[0].Segment = s.Backends[0].Segment, lb.Segment{}
		}, nil},
		"geneve, for a service in vxlan": {func(s *lb.Service) {
			overlay(s, lb.Geneve)
			s.Segment = lb.Segment{Type: lb.SegmentVXLAN, ID: 1}
		}, nil},
		"vxlan without anything": {func(s *lb.Service) { s.Forward, s.Backends = lb.VXLAN, s.Backends[:1] }, []string{
			"backends[0].tunnelEnd: missing: vxlan needs the backend's tunnel end point",
			"backends[0].mac: missing: vxlan needs the backend's own address within its segment",
			"backends[0].segment: missing: the service is in no vxlan segment, so the backend's has to be given"}},
		"vxlan in a vlan": {func(s *lb.Service) {
			overlay(s, lb.VXLAN)
			s.Backends[0].Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 7}
		}, []string{"backends[0].segment.type: vxlan delivers in segments of type vxlan, not vlan"}},
		"tunnel end is the VIP": {func(s *lb.Service) {
			overlay(s, lb.Geneve)
			s.Backends[0].TunnelEnd = s.Address
		}, []string{"backends[0].tunnelEnd: 10.1.1.1 is the VIP itself"}},
		"tunnel end is loopback": {func(s *lb.Service) {
			overlay(s, lb.Geneve)
			s.Backends[0].TunnelEnd = addr("127.0.0.1")
		}, []string{"backends[0].tunnelEnd: 127.0.0.1 is a loopback address: want one that others can reach"}},
		"gue with what only vxlan has": {func(s *lb.Service) {
			overlay(s, lb.VXLAN)
			s.Forward = lb.GUE
		}, []string{
			"backends[0].tunnelEnd: not with gue: only with vxlan and geneve",
			"backends[0].segment.type: gue delivers in no vxlan segments: want none or vlan"}},
		"backend segment": {func(s *lb.Service) { s.Backends[1].Segment.Type = lb.SegmentVLAN }, []string{"backends[1].segment.id: 0 is out of range: want 1 to 4094"}},
	})
}
