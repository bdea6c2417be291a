// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// fault is something on the way to the lab's first server that takes client's
// packets from it, while its own address answers as before.
type fault struct {
	name string
	// services find out.
	services []string
	// strike makes the fault, mend takes it away again.
	strike, mend func(*testing.T, *lab)
}

// A server that can't get clients' packets is found down, though its address still answers, and
// up again when it can, in both families. TestProbesAreForwardedAlike of
// internal/dataplane/xdp/packets has all modes.
func TestHealthAlongThePath(t *testing.T) {
	t.Parallel()
	both := []string{"web", "web6"}
	tunnel := []fault{{"no tunnel end", both, stopTunnel, startTunnel}}
	for _, c := range []struct {
		name   string
		made   func(*testing.T) netlab.Topology
		faults []fault
	}{
		{"l2dsr", small(lb.L2DSR), nil},
		{"vlan", behindVLAN, []fault{{"wrong vlan", both, vlanOfFirst(200), vlanOfFirst(serverVLAN)}}},
		{"ipip", small(lb.IPIP), tunnel},
		{"gue", small(lb.GUE), tunnel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := bringUp(t, "path-"+c.name, harness.Checked(c.made(t)))
			clients := l.Traffic(t, "web").NewFlows
			for _, f := range append(c.faults, withoutVIP(harness.VIP4, "web"), withoutVIP(harness.VIP6, "web6")) {
				t.Run(f.name+" "+f.services[0], func(t *testing.T) { l.checkFault(t, f) })
			}
			if now := l.Traffic(t, "web").NewFlows; now != clients {
				t.Errorf("probes count as clients' flows: there were %d, and now %d", clients, now)
			}
			if c.name == "l2dsr" {
				t.Run("killed", l.checkProbesAfterKill)
			}
		})
	}
}

// Answers to datagrams and refusals (ICMP) of closed ports come back from servers that have the
// VIP: without an expected answer, only the latter are failures.
func TestUDPHealthAlongThePath(t *testing.T) {
	t.Parallel()
	topology, services := small(lb.L2DSR)(t), []string{"echo", "echo6"}
	check := lb.HealthCheck{Type: lb.HealthUDP, Send: "a", Expect: "a", Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2}
	set := func(all []lb.Service) {
		for i := range all {
			if all[i].Protocol == lb.UDP {
				all[i].Health = new(check)
			}
		}
	}
	set(topology.Services)
	topology.SetServices(topology.Services)
	l := bringUp(t, "path-udp", topology)
	l.AwaitHealth(t, services, observe.HealthHealthy, observe.HealthHealthy)
	check.Port, check.Expect = 9, "" // closed
	set(l.Topology.Services)
	l.Configure(t, l.Topology.Services)
	l.AwaitHealth(t, services, observe.HealthUnhealthy, observe.HealthUnhealthy)
}

// checkFault has both servers healthy before the fault and after it, and only
// the second one in between.
func (l *lab) checkFault(t *testing.T, f fault) {
	l.AwaitHealth(t, f.services, observe.HealthHealthy, observe.HealthHealthy)
	f.strike(t, l)
	l.AwaitHealth(t, f.services, observe.HealthUnhealthy, observe.HealthHealthy)
	for _, service := range []string{"web", "web6"} {
		first := l.Service(service).Backends[0]
		if name, err := l.Get(t.Context(), "lb1", "http://"+first.ID().String()); err != nil || name != "server1" {
			t.Errorf("%s is answered by %q (%v): the fault is to leave that alone", first.ID(), name, err)
		}
		if !slices.Contains(f.services, service) {
			l.AwaitHealth(t, []string{service}, observe.HealthHealthy, observe.HealthHealthy)
		}
	}
	f.mend(t, l)
	l.AwaitHealth(t, f.services, observe.HealthHealthy, observe.HealthHealthy)
}

// checkProbesAfterKill kills the agent: the next one replaces the probes' kernel state, and
// detaching the data plane removes it.
func (l *lab) checkProbesAfterKill(t *testing.T) {
	h := l.State().Host("lb1")
	before := l.probeDevice(t)
	l.KillAgent(t, h, "agent")
	if left := l.probeDevice(t); left == "" || left != before {
		t.Fatalf("the device of probes is %q, and was %q: the test is to leave it behind", left, before)
	}
	l.StartAgent(t, h)
	l.checkFault(t, withoutVIP(harness.VIP4, "web"))
	l.KillAgent(t, l.State().Host("lb1"), "agent")
	l.Run(t, h.Name, append(slices.Clone(l.Process(t, h.Name, "agent").Args), "--remove")...)
	if left := l.probeDevice(t); left != "" {
		t.Error("the device of probes is left")
	}
	for _, family := range []string{"-4", "-6"} {
		if rules := l.Run(t, h.Name, "ip", family, "rule"); strings.Contains(rules, "fwmark") {
			t.Errorf("rules are left:\n%s", rules)
		}
	}
}

// probeDevice is the index of the device that the balancer's probes enter, or empty.
func (l *lab) probeDevice(t *testing.T) string {
	t.Helper()
	said := l.Run(t, "lb1", "sh", "-c", "ip -oneline link show fairlead-probe 2>/dev/null || true")
	index, _, _ := strings.Cut(said, ":")
	return index
}

// small is a lab of one balancer and two servers.
func small(forward lb.Forward) func(*testing.T) netlab.Topology {
	return func(t *testing.T) netlab.Topology {
		t.Helper()
		topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, Balancers: 1, Servers: 2})
		if err != nil {
			t.Fatal(err)
		}
		return topology
	}
}

// serverVLAN is the servers' VLAN in the lab behindVLAN.
const serverVLAN = 100

// behindVLAN is the lab with the servers in a VLAN.
func behindVLAN(t *testing.T) netlab.Topology {
	return netlab.ServersInVLAN(small(lb.L2DSR)(t), serverVLAN)
}

// vlanOfFirst configures in which VLAN the first server is.
func vlanOfFirst(id uint32) func(*testing.T, *lab) {
	return func(t *testing.T, l *lab) {
		t.Helper()
		for i := range l.Topology.Services {
			l.Topology.Services[i].Backends[0].Segment.ID = id
		}
		l.Configure(t, l.Topology.Services)
	}
}

// withoutVIP takes a VIP from the loopback of the first server.
func withoutVIP(vip, service string) fault {
	change := func(do func(netlink.Link, *netlink.Addr) error) func(*testing.T, *lab) {
		return func(t *testing.T, l *lab) {
			t.Helper()
			a := netip.MustParseAddr(vip)
			text := netip.PrefixFrom(a, a.BitLen()).String()
			harness.Link(t, l.Lab, "server1", "lo", func(lo netlink.Link) error {
				address, err := netlink.ParseAddr(text)
				if err != nil {
					return err
				}
				return do(lo, address)
			})
		}
	}
	return fault{"without VIP", []string{service}, change(netlink.AddrDel), change(netlink.AddrAdd)}
}

// stopTunnel ends the first server's tunnel end, startTunnel begins it again.
func stopTunnel(t *testing.T, l *lab) {
	t.Helper()
	if err := l.Stop(t.Context(), "server1", "node"); err != nil {
		t.Fatal(err)
	}
}

func startTunnel(t *testing.T, l *lab) {
	t.Helper()
	if err := l.Restart(t.Context(), "server1", "node"); err != nil {
		t.Fatal(err)
	}
}
