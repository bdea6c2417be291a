// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// An address that fewer members serve than minHealthy isn't announced, but served: members come
// one by one. A health check that can't be read isn't left out: the listener isn't served.
func TestIncompleteLoadBalancer(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	for name, c := range map[string]struct {
		pool     v1alpha1.Pool
		services int
	}{
		"few members": {v1alpha1.Pool{PoolOptions: v1alpha1.PoolOptions{MinHealthy: 2}, Members: []v1alpha1.Member{
			{Address: "10.0.0.1", Port: 80}, {Address: "10.0.0.2", Port: 80, Enabled: new(false)},
		}}, 1},
		"reversed codes": {v1alpha1.Pool{HealthCheck: &v1alpha1.HealthCheck{Type: "http", ExpectedCodes: "404-400"}}, 0},
	} {
		c.pool.Name = "web"
		b := &v1alpha1.LoadBalancer{Spec: v1alpha1.LoadBalancerSpec{
			Forward: "nat", Listeners: []v1alpha1.Listener{{Name: "http", Port: 80, Pool: "web"}}, Pools: []v1alpha1.Pool{c.pool},
		}}
		services, _ := spec.LoadBalancer(b, address)
		problems := spec.CheckLoadBalancer(b, address, nil, nil)
		if len(services) != c.services || len(problems) != 1-c.services {
			t.Errorf("%s: %d services, problems %v", name, len(services), problems)
		}
	}
}

// Listeners of one firewall mark, which the data plane joins, have to be alike, as no node can serve
// the others.
func TestMixedFirewallMark(t *testing.T) {
	b := &v1alpha1.LoadBalancer{Spec: v1alpha1.LoadBalancerSpec{
		Forward: "nat", FirewallMark: 5,
		Listeners: []v1alpha1.Listener{{Name: "http", Port: 80, Pool: "web"}, {Name: "https", Port: 443, Pool: "web"}},
		Pools:     []v1alpha1.Pool{{Name: "web", Members: []v1alpha1.Member{{Address: "10.0.0.1", Port: 8080}}}},
	}}
	problems := spec.CheckLoadBalancer(b, netip.MustParseAddr("192.0.2.1"), nil, nil)
	if len(problems) != 1 || problems[0].Listener != "https" || !strings.Contains(problems[0].Text, "port is 443 of") {
		t.Errorf("problems %v", problems)
	}
}

// A service has the fields of its listener, pool and members: the pool's forwarding mode
// overrides the load balancer's, and members that aren't enabled are left out.
func TestLoadBalancer(t *testing.T) {
	address, member := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.1")
	hours := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Hour} }
	for name, c := range map[string]struct {
		listener v1alpha1.Listener
		pools    []v1alpha1.Pool
		want     lb.Service
	}{
		"no pool": {v1alpha1.Listener{}, nil, lb.Service{Forward: lb.L2DSR, MinHealthy: 1}},
		"times": {
			v1alpha1.Listener{Pool: "web", ListenerOptions: v1alpha1.ListenerOptions{IdleTimeout: hours(1), Unavailable: "reject"}},
			[]v1alpha1.Pool{{Name: "other"}, {Name: "web", Forward: "ipip", SessionAffinity: "ClientIP", SessionAffinityTimeout: hours(2), PoolOptions: v1alpha1.PoolOptions{MinHealthy: 3}}},
			lb.Service{
				Forward: lb.IPIP, Affinity: lb.AffinityClient, AffinityTimeout: 2 * time.Hour, IdleTimeout: time.Hour,
				Unavailable: lb.Reject, MinHealthy: 3,
			},
		},
		"members": {
			v1alpha1.Listener{Pool: "web"},
			[]v1alpha1.Pool{{Name: "web", Members: []v1alpha1.Member{
				{Address: "10.0.0.1", Port: 80, Enabled: new(true), MemberOptions: v1alpha1.MemberOptions{ServerID: "00", Backup: true, MonitorAddress: "fd00::1", MonitorPort: 81}}, {Address: "10.0.0.2", Port: 80, Enabled: new(false)},
			}}},
			lb.Service{Forward: lb.L2DSR, MinHealthy: 1, Backends: []lb.Backend{
				{Address: member, Port: 80, Weight: 1, Backup: true, MonitorAddress: netip.MustParseAddr("fd00::1"), MonitorPort: 81},
			}},
		},
		"check": {
			v1alpha1.Listener{Pool: "web"},
			[]v1alpha1.Pool{{Name: "web", HealthCheck: &v1alpha1.HealthCheck{Type: "https", Method: "HEAD", Host: "a.example", ExpectedCodes: "200-299,404"}}},
			lb.Service{Forward: lb.L2DSR, MinHealthy: 1, Health: &lb.HealthCheck{
				Type: lb.HealthHTTPS, Method: lb.MethodHEAD, Path: "/", Host: "a.example", Status: lb.StatusSet{{Low: 200, High: 299}, {Low: 404, High: 404}},
				Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
			}},
		},
		"check over TLS": {
			v1alpha1.Listener{Pool: "web"},
			[]v1alpha1.Pool{{Name: "web", Forward: "nat", HealthCheck: &v1alpha1.HealthCheck{
				Type: "grpc", Service: "shop.Cart", TLS: &v1alpha1.HealthCheckTLS{Verify: true, ServerName: "a.example", CA: "pem"},
				Headers: map[string]v1alpha1.HeaderValue{"a": "b"}, Initially: "unhealthy", PanicThreshold: 30, SlowStart: hours(1), Passive: true,
				DNS: &v1alpha1.DNSQuery{Name: "a.example", Type: "AAAA", Code: "nxdomain", Answer: "::1"},
			}}},
			lb.Service{Forward: lb.NAT, MinHealthy: 1, Health: &lb.HealthCheck{
				Type: lb.HealthGRPC, Service: "shop.Cart", TLS: &lb.HealthTLS{Verify: true, ServerName: "a.example", CA: "pem"},
				Headers: map[string]string{"a": "b"}, Initially: lb.InitiallyUnhealthy, PanicThreshold: 30, SlowStart: time.Hour, Passive: true,
				DNS:      &lb.DNSQuestion{Name: "a.example", Type: lb.RecordAAAA, Code: lb.NXDomain, Answer: "::1"},
				Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
			}},
		},
		"quic": {
			v1alpha1.Listener{Pool: "web", Protocol: "UDP", ListenerOptions: v1alpha1.ListenerOptions{QUIC: &v1alpha1.QUIC{ConfigID: 1, ServerIDLength: 2, NonceLength: 8}}},
			[]v1alpha1.Pool{{Name: "web", Members: []v1alpha1.Member{{Address: "10.0.0.1", Port: 80, MemberOptions: v1alpha1.MemberOptions{ServerID: "0aFF"}}}}},
			lb.Service{
				Forward: lb.L2DSR, MinHealthy: 1, VIP: lb.VIP{Protocol: lb.UDP}, Learn: lb.DefaultLearn,
				Affinity: lb.AffinityQUIC, QUIC: &lb.QUIC{ConfigID: 1, ServerIDLength: 2, NonceLength: 8},
				Backends: []lb.Backend{{Address: member, Port: 80, Weight: 1, ServerID: "\x0a\xff"}},
			},
		},
		"dns check": {
			v1alpha1.Listener{Pool: "dns", Protocol: "UDP"},
			[]v1alpha1.Pool{{Name: "dns", HealthCheck: &v1alpha1.HealthCheck{Type: "dns", DNS: &v1alpha1.DNSQuery{Name: "a.example"}}}},
			lb.Service{Forward: lb.L2DSR, MinHealthy: 1, VIP: lb.VIP{Protocol: lb.UDP}, Learn: lb.DefaultLearn, Health: &lb.HealthCheck{
				Type: lb.HealthDNS, DNS: &lb.DNSQuestion{Name: "a.example", Type: lb.RecordA},
				Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
			}},
		},
		"udp check of tcp": {
			v1alpha1.Listener{Pool: "web"}, []v1alpha1.Pool{{Name: "web", HealthCheck: &v1alpha1.HealthCheck{Type: "udp"}}},
			lb.Service{Forward: lb.L2DSR, MinHealthy: 1},
		},
		"udp check of tcp with port": {
			v1alpha1.Listener{Pool: "web"},
			[]v1alpha1.Pool{{Name: "web", HealthCheck: &v1alpha1.HealthCheck{Type: "udp", Port: 53, Send: "a", Expect: "b"}}},
			lb.Service{Forward: lb.L2DSR, MinHealthy: 1, Health: &lb.HealthCheck{
				Type: lb.HealthUDP, Port: 53, Send: "a", Expect: "b", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
			}},
		},
	} {
		c.listener.Name, c.listener.Port = "http", 80
		b := &v1alpha1.LoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       v1alpha1.LoadBalancerSpec{Forward: "l2dsr", Listeners: []v1alpha1.Listener{c.listener}, Pools: c.pools},
		}
		got, problems := spec.LoadBalancer(b, address)
		if c.want.Name, c.want.Address, c.want.Port = "flb:default/web/http", address, 80; c.want.Protocol == 0 {
			c.want.Protocol = lb.TCP
		}
		if diff := cmp.Diff([]lb.Service{c.want}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || problems != nil {
			t.Errorf("%s: problems %q, -want +got:\n%s", name, problems, diff)
		}
	}
}

// The QUIC settings of a listener, its pool and members have to agree.
func TestQUICProblems(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Pool){
		"": func(*v1alpha1.Pool) {},
		"quic: not with sessionAffinity ClientIP of pool web":                     func(p *v1alpha1.Pool) { p.SessionAffinity = "ClientIP" },
		"scheduler: rr can't read connection IDs: want maglev with affinity quic": func(p *v1alpha1.Pool) { p.Scheduler = "rr" },
		"serverID: 000203 has 3 bytes: want the service's serverIDLength of 2":    func(p *v1alpha1.Pool) { p.Members[1].ServerID = "000203" },
		"serverID: 0001 is also that of backends[0]":                              func(p *v1alpha1.Pool) { p.Members[1].ServerID = "0001" },
	} {
		pool := v1alpha1.Pool{Name: "web", Members: []v1alpha1.Member{
			{Address: "10.0.0.1", Port: 443, MemberOptions: v1alpha1.MemberOptions{ServerID: "0001"}},
			{Address: "10.0.0.2", Port: 443, MemberOptions: v1alpha1.MemberOptions{ServerID: "0002"}},
		}}
		change(&pool)
		b := &v1alpha1.LoadBalancer{Spec: v1alpha1.LoadBalancerSpec{
			Forward: "l2dsr", Pools: []v1alpha1.Pool{pool},
			Listeners: []v1alpha1.Listener{
				{Name: "http3", Port: 443, Protocol: "UDP", Pool: "web", ListenerOptions: v1alpha1.ListenerOptions{QUIC: &v1alpha1.QUIC{ServerIDLength: 2, NonceLength: 8}}},
			},
		}}
		got := ""
		for _, p := range spec.CheckLoadBalancer(b, netip.MustParseAddr("192.0.2.1"), nil, nil) {
			got += strings.TrimPrefix(p.Text, "listener http3: ")
		}
		if got != want {
			t.Errorf("problem %q, want %q", got, want)
		}
	}
}
