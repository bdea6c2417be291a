// SPDX-License-Identifier: Apache-2.0

package netlab_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// checked has a service for each kind of health check, and one without.
func checked() netlab.AgentSettings {
	settings := netlab.AgentSettings{Node: "lb1", Services: []lb.Service{{}}}
	for _, h := range []lb.HealthCheck{
		{Type: lb.HealthTCP, Port: 8080, Initially: lb.InitiallyUnhealthy, PanicThreshold: 50, SlowStart: time.Minute, Passive: true},
		{
			Type: lb.HealthHTTPS, Path: `/a?b='c'`, Host: "example.com", Headers: map[string]string{"A": "it's: x", "B": "{}"},
			Status: lb.StatusSet{{Low: 200, High: 299}, {Low: 404, High: 404}}, Body: `"ok\s"`, TLS: &lb.HealthTLS{Verify: true, ServerName: "example.com"},
		},
		{Type: lb.HealthGRPC, Service: "shop.Cart", TLS: &lb.HealthTLS{}},
		{Type: lb.HealthDNS, DNS: &lb.DNSQuestion{Name: "example.com", Type: lb.RecordAAAA, Answer: "fd00::1"}},
		{Type: lb.HealthUDP, Send: `\x00 it's`, Expect: `\n`},
		{Type: lb.HealthICMP},
	} {
		h.Interval, h.Timeout, h.Rise, h.Fall = 200*time.Millisecond, 100*time.Millisecond, 2, 3
		settings.Services = append(settings.Services, lb.Service{Health: &h})
	}
	for i := range settings.Services {
		s := &settings.Services[i]
		s.Name, s.Forward, s.MinHealthy = fmt.Sprint("s", i), lb.NAT, 1
		s.VIP = lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: uint16(80 + i), Protocol: lb.TCP}
		s.Backends = []lb.Backend{{Address: netip.MustParseAddr("10.0.0.1"), Port: 80, Weight: 1}}
	}
	return settings
}

// An agent reads the services, checks and routes that the lab's author wrote.
func TestAgentConfig(t *testing.T) {
	ecmp, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 2, Router: netlab.FRR})
	if err != nil {
		t.Fatal(err)
	}
	vlan, vxlan := netlab.VLAN(), netlab.VXLAN(0)
	announced := *ecmp.Host("lb1").Agent
	med := uint32(10)
	announced.BGP.Peers[0].Password = bgp.Secret{Env: "KEY"}
	t.Setenv("KEY", "secret")
	announced.BGP.Policies = []bgp.Policy{{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Aggregate: true, NextHop4: netip.MustParseAddr("10.0.2.9"),
		Attributes: bgp.Attributes{MED: &med},
	}}
	everything := netlab.AgentSettings{Node: "lb1", Services: []lb.Service{{
		Name:    "h3",
		VIP:     lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 443, Protocol: lb.UDP},
		Forward: lb.IPIP, Affinity: lb.AffinityQUIC, QUIC: &lb.QUIC{ConfigID: 1, ServerIDLength: 1, NonceLength: 4},
		Tracking: lb.TrackingFull, IdleTimeout: time.Hour, Unavailable: lb.Reject, MinHealthy: 2,
		Limits: lb.FlowLimits{NewFlows: 10, NewFlowsPerSource: 2},
		Sources: lb.Sources{
			Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("11.0.0.0/8")},
			Deny:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		},
		Backends: []lb.Backend{
			{Address: netip.MustParseAddr("10.0.2.101"), Port: 443, Weight: 1, ServerID: "\x0a"},
			{Address: netip.MustParseAddr("10.0.2.102"), Port: 443, ServerID: "\x10"},
		},
	}}}
	defaults := cmpopts.IgnoreFields(lb.Service{}, "Learn")
	for name, settings := range map[string]netlab.AgentSettings{
		"ecmp": announced, "every field": everything, "no services": announced.With(nil), "checks": checked(),
		"vlan": *vlan.Host("lb1").Agent, "vxlan": *vxlan.Host("lb2").Agent,
	} {
		conf, err := config.Parse(name, settings.YAML(), dataplanetest.Limits())
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, settings.YAML())
			continue
		}
		read := netlab.AgentSettings{Node: conf.Node.Name, TunnelEnds: conf.Node.TunnelEnds, TunnelPeers: conf.Node.TunnelPeers, BGP: conf.BGP, Services: conf.Services}
		if diff := cmp.Diff(settings, read, defaults, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("%s: -written +read:\n%s", name, diff)
		}
	}
}
