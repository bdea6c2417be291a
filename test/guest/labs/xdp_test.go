//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// end is how a server ends tunnels by devices of the kernel.
type end struct {
	// commands are ip's that make the devices. Without link-local addresses these announce nothing.
	commands []string
	// devices are those that receive, by the families of the VIP and of the tunnel, IPv4 first.
	devices [2][2]string
}

// fallback are the devices that the modules bring along, which take packets from any sender for
// any address, and own are devices for the address of server2. Both take any family out of IPv6.
func fallback() end {
	return end{
		[]string{"-6 tunnel change ip6tnl0 mode any", "link set ip6tnl0 addrgenmode none"},
		[2][2]string{{"tunl0", "ip6tnl0"}, {"sit0", "ip6tnl0"}},
	}
}

func own() end {
	return end{
		[]string{
			"link add ipip1 type ipip local 10.0.2.102", "link add sit1 type sit local 10.0.2.102",
			"link add ip6tnl1 type ip6tnl local fd00:2::102 mode any", "link set ip6tnl1 addrgenmode none",
		},
		[2][2]string{{"ipip1", "ip6tnl1"}, {"sit1", "ip6tnl1"}},
	}
}

// gue has the fou module, which ends GUE, hand packets to the devices of an end.
func gue(e end) end {
	e.commands = append(e.commands, "fou add port 6080 gue", "-6 fou add port 6080 gue")
	return e
}

// vxlan are devices that the lab has made.
func vxlan() end { return end{devices: [2][2]string{{"vx4", "vx6"}, {"vx4", "vx6"}}} }

// geneve are devices of the nth server that take frames from their far end only, which is the
// balancer.
func geneve(n int) end {
	const device = "link add gnv%s address 02:00:00:00:64:%02d type geneve id 5001 dstport 6081 remote %s"
	return end{
		[]string{
			fmt.Sprintf(device, "4", n, "10.0.2.11"), "link set gnv4 addrgenmode none",
			fmt.Sprintf(device, "6", n, "fd00:2::11"), "link set gnv6 addrgenmode none",
		},
		[2][2]string{{"gnv4", "gnv6"}, {"gnv4", "gnv6"}},
	}
}

// Requests of curl and datagrams reach nginx and an echo server through an agent, whose program
// runs in the driver; tunnels end at the kernel's devices, however an operator has made them, and
// these count every packet. A server that fails leaves and comes back, and programmed services
// work without the agent.
func TestXDP(t *testing.T) {
	for _, mode := range []struct {
		forward lb.Forward
		ends    []end // of the servers
	}{
		{lb.L2DSR, nil},
		{lb.NAT, nil},
		{lb.IPIP, []end{fallback(), own()}},
		{lb.GUE, []end{gue(fallback()), gue(own())}},
		{lb.VXLAN, []end{vxlan(), vxlan()}},
		{lb.Geneve, []end{geneve(1), geneve(2)}},
	} {
		t.Run(mode.forward.String(), func(t *testing.T) {
			l := bringUp(t, "xdp", mode.forward.String(), ecmp(t, mode.forward, len(servers)))
			l.checkNode(t)
			l.makeDevices(t, mode.forward, mode.ends)
			services := l.Topology.Services
			l.checkMode(t, mode.forward, mode.ends)
			if len(mode.ends) > 0 {
				l.replace(t, crossed(services))
				l.checkMode(t, mode.forward, mode.ends)
			}
			l.checkWithoutAgent(t)
		})
	}
}

// checkNode checks that nothing is missing on the balancer and that XDP is native.
func (l lab) checkNode(t *testing.T) {
	t.Helper()
	t.Log(l.Run(t, balancer, "fairlead", "preflight", "--config", netlab.AgentFile))
	attached := harness.Status(t, l.State().Host(balancer)).DataPlane.Attachments
	if len(attached) != 1 || attached[0].Mode != "native" {
		t.Errorf("attachments %+v, want one that is native", attached)
	}
}

// makeDevices makes the servers' ends. Where tunnels are over UDP the harness is to know of them:
// the kernel also counts the datagrams that carry packets.
func (l lab) makeDevices(t *testing.T, forward lb.Forward, ends []end) {
	t.Helper()
	for i, e := range ends {
		l.ip(t, servers[i], e.commands...)
		for _, name := range e.names() {
			l.ip(t, servers[i], "link set "+name+" up")
			if h := l.Topology.Host(servers[i]); forward == lb.GUE || forward == lb.Geneve {
				h.Overlays = append(h.Overlays, netlab.Overlay{Name: name})
			}
		}
	}
}

// names returns the names of all devices.
func (e end) names() []string {
	names := slices.Concat(e.devices[0][:], e.devices[1][:])
	slices.Sort(names)
	return slices.Compact(names)
}

// crossed has tunnels of the other family lead to the servers.
func crossed(services []lb.Service) []lb.Service {
	services = slices.Clone(services)
	for i := 0; i < len(services); i += 2 { // IPv4, IPv6
		services[i].Backends, services[i+1].Backends = services[i+1].Backends, services[i].Backends
	}
	return services
}

// checkMode checks that every packet leaves the balancer in the mode and arrives, through devices
// that end tunnels if there are any. Then a server fails.
func (l lab) checkMode(t *testing.T, forward lb.Forward, ends []end) {
	t.Helper()
	l.AwaitInUse(t, len(servers))
	exit := "forward_" + forward.String()
	sent := func() uint64 { return harness.ExitsOf(t, l.State().Host(balancer))[exit] }
	sentBefore, before := sent(), l.received(t, ends)
	l.CheckPackets(t, exit, func() { l.checkTraffic(t, noBody, servers...) })
	sum := uint64(0)
	now := l.received(t, ends)
	for device, packets := range now {
		sum += packets - before[device]
	}
	for i, e := range ends {
		for _, s := range l.Topology.Services {
			device := servers[i] + " " + e.devices[family(s.Address)][family(s.Backends[i].Address)]
			if now[device] == before[device] {
				t.Errorf("%s received nothing", device)
			}
		}
	}
	if want := sent() - sentBefore; len(ends) > 0 && sum != want {
		t.Errorf("the balancer sent %d packets, devices received %d", want, sum)
	}
	l.checkFailure(t)
}

// received are the packets that the servers' devices have taken out of tunnels.
func (l lab) received(t *testing.T, ends []end) map[string]uint64 {
	t.Helper()
	packets := map[string]uint64{}
	for i, e := range ends {
		counts := harness.Frames(t, l.Lab, servers[i])
		for _, name := range e.names() {
			packets[servers[i]+" "+name] = counts[name].Received
		}
	}
	return packets
}

// family is the index of an address's family.
func family(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}
