// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// held is how many connections are open at a time, moved how many are used again and
// again while something changes.
const (
	held  = 1000
	moved = 500
)

// Servers that know nothing of the VIPs, and have nginx at another port.
func TestNAT(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "nat", withLines(harness.ECMP(t, lb.NAT)))
	l.checkUnaware(t)
	harness.EachFamily(t, func(t *testing.T, vip string) {
		l.checkFamily(t, "forward_nat", vip)
		t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
		t.Run("hairpin", func(t *testing.T) { l.checkHairpin(t, vip) })
	})
	t.Run("held", func(t *testing.T) { l.checkHeld(t, "forward_nat") })
}

// Connections and datagrams of NAT outlive the agents, and changes of backends.
func TestNATThroughChanges(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "natchange", withLines(harness.ECMP(t, lb.NAT)))
	t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, "forward_nat") })
	t.Run("drained", l.checkDrained)
}

// withLines adds the services "lines" and "lines6": TCP to the echo servers.
func withLines(t netlab.Topology) netlab.Topology {
	services := slices.Clone(t.Services)
	for _, s := range t.Services {
		if s.Protocol == lb.UDP {
			s.Name, s.Protocol = strings.Replace(s.Name, "echo", "lines", 1), lb.TCP
			services = append(services, s)
		}
	}
	t.SetServices(services)
	return t
}

// checkUnaware finds no VIP on any host.
func (l *lab) checkUnaware(t *testing.T) {
	t.Helper()
	for _, h := range l.State().Hosts {
		if len(h.VIPs) > 0 {
			t.Errorf("%s has VIPs: %v", h.Name, h.VIPs)
		}
		if said := l.Run(t, h.Name, "ip", "-brief", "address"); strings.Contains(said, harness.VIP4) || strings.Contains(said, harness.VIP6) {
			t.Errorf("%s has a VIP:\n%s", h.Name, said)
		}
	}
}

// checkHeld opens as many connections as are to be held, and has each of them
// used again and again while all are open.
func (l *lab) checkHeld(t *testing.T, forwarded string) {
	l.CheckPackets(t, forwarded, func() {
		c := l.crowd(t, held)
		for range 5 {
			c.speak(t)
		}
		counts := c.byServer()
		for _, h := range l.Hosts(netlab.Server) {
			if counts[h.Name] < held/10 {
				t.Errorf("%s has %d of %d connections", h.Name, counts[h.Name], held)
			}
		}
		c.close()
	})
}

// crowd opens connections from the client, half of each family.
func (l *lab) crowd(t *testing.T, size int) *connections {
	t.Helper()
	c := l.connections(t, "client", harness.VIP4, size/2)
	c.members = append(c.members, l.connections(t, "client", harness.VIP6, size/2).members...)
	return c
}

// checkBulk sends a mebibyte and gets it back at the same time, in lines.
func (l *lab) checkBulk(t *testing.T, vip string) {
	const size = 1 << 20
	before := l.Totals(t)
	conn, err := l.Dial(t.Context(), "client", "tcp", net.JoinHostPort(vip, "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 4000), '\n')
	lines := size/len(line) + 1
	var group errgroup.Group
	group.Go(func() error {
		_, err := conn.Write(bytes.Repeat(line, lines))
		return err
	})
	one := make([]byte, len(line)+1)
	if _, err := io.ReadFull(conn, one); err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(string(one), " ")
	rest := make([]byte, lines*(len(name)+1+len(line))-len(one))
	if _, err := io.ReadFull(conn, rest); err != nil {
		t.Fatal(err)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat(append([]byte(name+" "), line...), lines)
	if !bytes.Equal(append(one, rest...), want) {
		t.Error("lines came back changed")
	}
	l.Totals(t).Minus(before).CheckClean(t)
}

// checkHairpin has a server ask the VIP: other servers answer it, and it answers
// itself. It asks so often that one of six servers is left out by chance in one of
// 10^11 runs.
func (l *lab) checkHairpin(t *testing.T, vip string) {
	const most = 150
	servers := l.Hosts(netlab.Server)
	for _, h := range servers {
		answers := map[string]int{}
		for requests := 0; requests < most && len(answers) < len(servers); requests += 10 {
			for name, n := range l.Gets(t, h.Name, harness.Origin(vip), 10) {
				answers[name] += n
			}
		}
		if len(answers) != len(servers) {
			t.Errorf("%s asks %s: answers by %v, want all servers", h.Name, vip, answers)
		}
	}
}

// checkAllKilled kills all agents at once under load and starts them again: no
// connection breaks and none stands still.
func (l *lab) checkAllKilled(t *testing.T, forwarded string) {
	l.CheckPackets(t, forwarded, func() {
		l.crowd(t, moved).during(t, func(heard func()) {
			heard()
			for _, h := range l.Hosts(netlab.Balancer) {
				l.KillAgent(t, &h, "agent")
			}
			heard()
			l.crowd(t, 100).speak(t) // new ones, without any agent
			for _, h := range l.Hosts(netlab.Balancer) {
				l.StartAgent(t, &h)
				if !harness.Status(t, &h).DataPlane.Attachments[0].Adopted {
					t.Errorf("%s: the program was not adopted", h.Name)
				}
			}
			heard()
		})
	})
}

// checkDrained takes a server's weight under load, then the server, and gives
// both back: connections that are there stay, new ones go elsewhere.
func (l *lab) checkDrained(t *testing.T) {
	first := l.Hosts(netlab.Server)[0].Name
	without := func(remove bool) []lb.Service {
		return l.Changed(func(s *lb.Service) {
			s.Backends[0].Weight = 0
			if remove {
				s.Backends = s.Backends[1:]
			}
		})
	}
	c := l.crowd(t, moved)
	if c.byServer()[first] == 0 {
		t.Fatalf("%s has no connection", first)
	}
	c.during(t, func(heard func()) {
		for _, remove := range []bool{false, true} {
			l.Configure(t, without(remove))
			heard()
			if n := l.crowd(t, 100).byServer()[first]; n > 0 {
				t.Errorf("removed %v: %s gets %d new connections", remove, first, n)
			}
		}
		l.Configure(t, l.Topology.Services)
		heard()
	})
}

// A link on the way to the client has a smaller MTU than servers assume. The router sends
// its ICMP error to the VIP, and the balancer with the session forwards it to the server. A
// router needn't choose that one of several balancers, so there is one.
func TestNATPathMTU(t *testing.T) {
	t.Parallel()
	plain, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.NAT, Balancers: 1, Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := netlab.Pods(netlab.PodsOptions{Balancers: 1, Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, topology := range map[string]netlab.Topology{"plain": plain, "overlay": overlay} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := bringUp(t, "natmtu"+name, withLines(topology))
			l.checkSmallLink(t)
			l.Run(t, "router", "ip", "link", "set", "dev", "eth0", "mtu", "1280")
			// The client keeps to it, and lets the server send as much as before.
			l.Run(t, "client", "ip", "route", "add", harness.VIP4, "via", "10.0.1.1", "mtu", "1280", "advmss", "1460")
			l.Run(t, "client", "ip", "route", "add", harness.VIP6, "via", "fd00:1::1", "mtu", "1280", "advmss", "1440")
			l.checkBulk(t, harness.VIP4)
			l.checkBulk(t, harness.VIP6)
		})
	}
}
