// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// text formats a description as ipvsadm would, with numbers instead of words.
func (d description) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %#x", d.virtual.id, d.virtual.scheduler, d.virtual.flags)
	if d.virtual.timeout != 0 {
		fmt.Fprintf(&b, " %ds", d.virtual.timeout)
	}
	for _, s := range d.servers {
		fmt.Fprintf(&b, "; %s method %d weight %d", s.BackendID, s.method, s.weight)
		if s.upper != 0 {
			fmt.Fprintf(&b, " upper %d", s.upper)
		}
		if s.tunnel != 0 {
			fmt.Fprintf(&b, " tunnel %d port %d flags %d", s.tunnel, s.tunnelPort, s.tunnelFlags)
		}
	}
	return b.String()
}

// example is a service with backends of these addresses.
func example(vip string, addresses ...string) *lb.Service {
	s := &lb.Service{
		Name: "web", VIP: lb.VIP{Address: netip.MustParseAddr(vip), Port: 80, Protocol: lb.TCP}, Forward: lb.NAT, MinHealthy: 1,
	}
	for _, a := range addresses {
		s.Backends = append(s.Backends, lb.Backend{Address: netip.MustParseAddr(a), Port: 80, Weight: 1})
	}
	return s
}

func TestDescribe(t *testing.T) {
	unreachable := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.2.99") }
	for _, test := range []struct {
		name   string
		change func(*lb.Service)
		want   string
	}{
		{"maglev", func(*lb.Service) {}, "mh 0x18; 10.0.2.1:80 method 0 weight 1; 10.0.2.2:80 method 0 weight 1"},
		{"rr", func(s *lb.Service) { s.Scheduler = lb.SchedulerRR }, "rr 0x0; 10.0.2.1:80 method 0 weight 1; 10.0.2.2:80 method 0 weight 1"},
		{"sh", func(s *lb.Service) { s.Scheduler = lb.SchedulerSH }, "sh 0x8; 10.0.2.1:80 method 0 weight 1; 10.0.2.2:80 method 0 weight 1"},
		{"client", func(s *lb.Service) { s.Affinity = lb.AffinityClient }, "mh 0x8; 10.0.2.1:80 method 0 weight 1; 10.0.2.2:80 method 0 weight 1"},
		{"persistence", func(s *lb.Service) {
			s.Scheduler, s.Affinity, s.AffinityTimeout = lb.SchedulerWLC, lb.AffinityClient, 1500*time.Millisecond
		}, "wlc 0x1 2s; 10.0.2.1:80 method 0 weight 1; 10.0.2.2:80 method 0 weight 1"},
		{"l2dsr", func(s *lb.Service) { s.Forward = lb.L2DSR }, "mh 0x18; 10.0.2.1:0 method 3 weight 1; 10.0.2.2:0 method 3 weight 1"},
		{"ipip", func(s *lb.Service) { s.Forward = lb.IPIP }, "mh 0x18; 10.0.2.1:80 method 2 weight 1; 10.0.2.2:80 method 2 weight 1"},
		{"gue", func(s *lb.Service) {
			s.Forward, s.Backends[1].Address = lb.GUE, netip.MustParseAddr("fd00::2")
		}, "mh 0x18; 10.0.2.1:80 method 2 weight 1 tunnel 1 port 6080 flags 0; [fd00::2]:80 method 2 weight 1 tunnel 1 port 6080 flags 1"},
		{"threshold", func(s *lb.Service) { s.Backends[0].MaxConnections = 20000 }, "mh 0x18; 10.0.2.1:80 method 0 weight 1 upper 20000; 10.0.2.2:80 method 0 weight 1"},
		{"order", func(s *lb.Service) { s.Backends[0], s.Backends[1] = s.Backends[1], s.Backends[0] }, "mh 0x18; 10.0.2.1:80 method 0 weight 1; 10.0.2.2:80 method 0 weight 1"},
		{"down", func(s *lb.Service) { s.Backends[0].Down = true }, "mh 0x18; 10.0.2.2:80 method 0 weight 1"},
		{"drained", func(s *lb.Service) { s.Backends[0].Weight, s.Backends[0].Drained = 0, true }, "mh 0x18; 10.0.2.1:80 method 0 weight 0; 10.0.2.2:80 method 0 weight 1"},
		{"slow start", func(s *lb.Service) { s.Backends[0].Weight, s.Backends[0].Share = 2, 3 }, "mh 0x18; 10.0.2.1:80 method 0 weight 6; 10.0.2.2:80 method 0 weight 16"},
		{"no route", func(s *lb.Service) { s.Backends[1].Address = netip.MustParseAddr("10.0.2.99") }, "mh 0x18; 10.0.2.1:80 method 0 weight 1; 10.0.2.99:80 method 0 weight 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := example("10.1.1.1", "10.0.2.1", "10.0.2.2")
			test.change(s)
			if wrong := Limits().Check(s); len(wrong) > 0 {
				t.Fatal(wrong)
			}
			if got, want := describe([]*lb.Service{s}, unreachable).text(), "tcp 10.1.1.1:80 "+test.want; got != want {
				t.Errorf("described as\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestDescribeFirewallMark(t *testing.T) {
	marked := func(port uint16, addresses ...string) *lb.Service {
		s := example("fd00::1", addresses...)
		s.FirewallMark, s.Scheduler, s.Port = 7, lb.SchedulerLC, port
		for i := range s.Backends {
			s.Backends[i].Port = port
		}
		return s
	}
	translated := marked(80, "fd00:2::1")
	translated.Backends[0].Port = 8080
	limited := marked(80, "fd00:2::1", "fd00:2::2")
	limited.Backends[0].MaxConnections, limited.Backends[0].Weight = 5, 3
	for _, test := range []struct {
		name     string
		services []*lb.Service
		want     string
	}{
		{"one", []*lb.Service{translated}, "; [fd00:2::1]:8080 method 0 weight 1"},
		{"one port", []*lb.Service{limited, marked(80, "fd00:2::1", "fd00:2::3")},
			"; [fd00:2::1]:80 method 0 weight 1 upper 5; [fd00:2::2]:80 method 0 weight 1; [fd00:2::3]:80 method 0 weight 1"},
		{"two ports", []*lb.Service{marked(80, "fd00:2::1"), marked(443, "fd00:2::1")}, "; [fd00:2::1]:0 method 0 weight 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := describe(test.services, func(netip.Addr) bool { return false }).text()
			if want := "firewall mark 7 (IPv6) lc 0x0" + test.want; got != want {
				t.Errorf("described as\n%s\nwant\n%s", got, want)
			}
		})
	}
	if err := translated.Alike(*marked(443, "fd00:2::1")); !errors.Is(err, lb.ErrMixedMark) {
		t.Errorf("services of two ports, of which one is translated: %v", err)
	}
	if err := marked(80).Alike(*marked(443, "fd00:2::1")); err != nil {
		t.Errorf("services of two ports: %v", err)
	}
}

// The backends of an earlier process's service are IPVS's servers, each once, at the VIP's port if they have none.
func TestBackendsOfUnknown(t *testing.T) {
	at := func(text string) (s liveServer) {
		s.BackendID = netip.MustParseAddrPort(text)
		return s
	}
	vip := lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}
	servers := []liveServer{at("10.0.2.1:0"), at("10.0.2.1:80"), at("10.0.2.2:8080")}
	var got []string
	for _, b := range (&Plane{}).backends(vip, servers) {
		got = append(got, fmt.Sprint(b.ID(), " of ", len(serversOf(servers, b))))
	}
	if want := []string{"10.0.2.1:80 of 2", "10.0.2.2:8080 of 1"}; !slices.Equal(got, want) {
		t.Errorf("backends and servers of each are %q, want %q", got, want)
	}
}

// Each property that IPVS has is one of a service.
func TestLimitsProperties(t *testing.T) {
	for _, name := range Limits().Properties {
		if !slices.ContainsFunc(lb.Properties(), func(p lb.Property) bool { return p.Field == name }) {
			t.Errorf("services have no property %q", name)
		}
	}
}

// A kernel without IPVS is an error that names the module.
func TestOpenWithoutIPVS(t *testing.T) {
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		t.Skip("this kernel has IPVS: the guest's tests open it")
	}
	_, err := Open(Config{})
	missing, ok := errors.AsType[*MissingError](err)
	if !ok || missing.Module != "ip_vs" || !strings.Contains(err.Error(), "module ip_vs") {
		t.Errorf("opened without IPVS: %v", err)
	}
	if err := Remove(); err != nil {
		t.Errorf("removed without IPVS: %v", err)
	}
}

func TestParseConnection(t *testing.T) {
	for line, want := range map[string]string{
		"TCP C0A80001 D431 0A010101 0050 AC101502 1F90 ESTABLISHED     899":                                                                                              "192.168.0.1:54321 tcp 10.1.1.1:80 172.16.21.2:8080 false 899",
		"UDP fd00:0000:0000:0000:0000:0000:0000:0002 D431 fd00:0000:0000:0000:0000:0000:0000:0001 0035 fd00:0000:0000:0000:0000:0000:0000:0003 0035 UDP             300": "[fd00::2]:54321 udp [fd00::1]:53 [fd00::3]:53 false 300",
		"TCP C0A80001 D431 0A010101 0050 AC101502 0050 FIN_WAIT        119":                                                                                              "192.168.0.1:54321 tcp 10.1.1.1:80 172.16.21.2:80 true 119",
		"TCP C0A80001 0000 0A010101 0050 AC101502 0050 NONE            119":                                                                                              "",
		"Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData":                                                                                "",
		"IP  C0A80001 0000 0A010101 0050 AC101502 0050 NONE            119":                                                                                              "",
		"TCP X 0000 0A010101 0050 AC101502 0050 NONE            119":                                                                                                     "",
	} {
		f, ok := parseConnection(line)
		got := ""
		if ok {
			got = fmt.Sprint(f.Client, " ", f.VIP, " ", f.Backend, " ", f.Closing, " ", f.expires)
		}
		if got != want {
			t.Errorf("%s\nis read as %q, want %q", line, got, want)
		}
	}
}
