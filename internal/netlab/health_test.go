// SPDX-License-Identifier: Apache-2.0

package netlab_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/dataplane/fake"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/source/file"
)

// An agent reads the checks that the lab's author wrote.
func TestAgentConfigHasHealthChecks(t *testing.T) {
	check := func(h lb.HealthCheck) *lb.HealthCheck {
		h.Interval, h.Timeout, h.Rise, h.Fall = 200*time.Millisecond, 100*time.Millisecond, 2, 3
		return &h
	}
	for name, want := range map[string]*lb.HealthCheck{
		"none": nil,
		"tcp":  check(lb.HealthCheck{Type: lb.HealthTCP, Port: 8080, Initially: lb.InitiallyUnhealthy, PanicThreshold: 50, SlowStart: time.Minute, Passive: true}),
		"https": check(lb.HealthCheck{
			Type: lb.HealthHTTPS, Path: `/a?b='c'`, Host: "example.com", Headers: map[string]string{"A": "it's: x", "B": "{}"},
			Status: lb.StatusSet{{Low: 200, High: 299}, {Low: 404, High: 404}}, Body: `"ok\s"`, TLS: &lb.HealthTLS{Verify: true, ServerName: "example.com"},
		}),
		"grpc": check(lb.HealthCheck{Type: lb.HealthGRPC, Service: "shop.Cart", TLS: &lb.HealthTLS{}}),
		"dns":  check(lb.HealthCheck{Type: lb.HealthDNS, DNS: &lb.DNSQuestion{Name: "example.com", Type: lb.RecordAAAA, Answer: "fd00::1"}}),
		"udp":  check(lb.HealthCheck{Type: lb.HealthUDP, Send: `\x00 it's`, Expect: `\n`}),
		"icmp": check(lb.HealthCheck{Type: lb.HealthICMP}),
	} {
		service := lb.Service{
			Name: "web", VIP: lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP},
			Forward: lb.NAT, MinHealthy: 1, Health: want,
			Backends: []lb.Backend{{Address: netip.MustParseAddr("10.0.0.1"), Port: 80, Weight: 1}},
		}
		config, err := file.Parse(name, []byte(netlab.AgentSettings{Node: "lb1", Services: []lb.Service{service}}.YAML()), fake.Limits())
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(want, config.Services[0].Health); diff != "" {
			t.Errorf("%s: -written +read:\n%s", name, diff)
		}
	}
}
