// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Balancers that are pods behind their node's address are one neighbour each for
// the reflector, and one next hop each for the router, whatever becomes of others.
func TestReflectorSNAT(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD} {
		t.Run(string(router), func(t *testing.T) {
			t.Parallel()
			harness.NeedRoot(t)
			topology, err := netlab.SNAT(netlab.SNATOptions{Router: router, Balancers: 3, Servers: 2})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, "snat-"+string(router), topology)
			t.Run("clients", l.checkSharedAddress)
			t.Run("other pods", l.checkOtherPods)
			t.Run("all take part", l.checkAllPods)
			t.Run("one stops", l.checkPodStops)
			t.Run("one is killed", l.checkPodKilled)
			t.Run("reflector killed", l.checkReflectorKilled)
		})
	}
}

// clients are the reflector's that have a session.
func (l *lab) clients(t *testing.T) (all []bgp.PeerState) {
	t.Helper()
	for _, p := range l.Routes(t, "reflector").Peers {
		if p.Dynamic && p.State == bgp.Established {
			all = append(all, p)
		}
	}
	return all
}

// The reflector shows each client, by the node's address and its own router id,
// and from whom it has each next hop.
func (l *lab) checkSharedAddress(t *testing.T) {
	clients := l.clients(t)
	if len(clients) != 3 {
		t.Fatalf("clients are %+v", clients)
	}
	node := l.Topology.Host("node").Interfaces[0].Addresses[0].Addr()
	for i, p := range clients {
		id := l.Topology.Host([]string{"lb1", "lb2", "lb3"}[i]).Agent.BGP.RouterID
		if p.Address != node || p.RouterID != id || p.RoutesReceived != 2 {
			t.Errorf("client %d is %+v, want %s with router id %s", i, p, node, id)
		}
	}
	var hops []netip.Addr
	for _, a := range l.Routes(t, "reflector").Announcements {
		if a.Prefix == hostRoute(harness.VIP4) && slices.Equal(a.From, []netip.Addr{node}) {
			hops = append(hops, a.NextHop)
		}
	}
	if len(hops) != 3 {
		t.Errorf("next hops of %s are %s", harness.VIP4, hops)
	}
}

// Pods that are not balancers, and processes of the node itself, have the node's address
// towards the reflector, and can't connect to it.
func (l *lab) checkOtherPods(t *testing.T) {
	reflector := netip.AddrPortFrom(l.Address("reflector"), bgp.Port).String()
	connect := func(host string, from net.IP) error {
		return l.Do(host, func() error {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: await.Patience}
			conn, err := dialer.DialContext(t.Context(), "tcp4", reflector)
			if err == nil {
				conn.Close()
			}
			return err
		})
	}
	pod := net.IPv4(10, 244, 1, 200)
	err := l.Do("lb1", func() error {
		link, err := netlink.LinkByName("eth1")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: pod, Mask: net.CIDRMask(24, 32)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := connect("lb1", nil); err != nil {
		t.Errorf("the balancer's pod: %v", err)
	}
	for host, from := range map[string]net.IP{"lb1": pod, "node": nil} {
		if err := connect(host, from); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s from %v: %v, want connection refused", host, from, err)
		}
	}
}

// checkUnsigned connects from one host to BGP on another one without a password: the kernel
// there drops it, although it has the address of a peer.
func (l *lab) checkUnsigned(t *testing.T, from, to string) {
	t.Helper()
	dropped := func() (count int) {
		err := l.Do(to, func() error {
			text, err := os.ReadFile("/proc/thread-self/net/netstat")
			lines := strings.Split(string(text), "\n")
			for i := 0; i+1 < len(lines); i += 2 {
				names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
				if at := slices.Index(names, "TCPMD5NotFound"); at >= 0 {
					count, err = strconv.Atoi(values[at])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	before := dropped()
	ctx, cancel := context.WithCancel(t.Context())
	connected := make(chan error, 1)
	go func() {
		conn, err := l.Dial(ctx, from, "tcp4", netip.AddrPortFrom(l.Address(to), bgp.Port).String())
		if err == nil {
			conn.Close()
		}
		connected <- err
	}()
	harness.Until(t, to+" drops packets of "+from, func() bool { return dropped() > before })
	cancel()
	if err := <-connected; err == nil {
		t.Errorf("%s connected to %s without a password", from, to)
	}
}

// checkAlive asks for pages, more often than there are balancers.
func (l *lab) checkAlive(t *testing.T) {
	t.Helper()
	l.Gets(t, "client", harness.Origin(harness.VIP4), 20)
	l.Gets(t, "client", harness.Origin(harness.VIP6), 20)
}

// The client's packets come through every pod, in both families.
func (l *lab) checkAllPods(t *testing.T) {
	for _, service := range []string{"web", "web6"} {
		harness.Until(t, "all pods have balanced "+service, func() bool {
			l.checkAlive(t)
			for _, h := range l.Hosts(netlab.Balancer) {
				var packets uint64
				for _, b := range harness.Backends(t, &h, service) {
					packets += b.Packets
				}
				if packets == 0 {
					return false
				}
			}
			return true
		})
	}
}

// A pod that is stopped goes off the table, and the others' sessions don't mind.
func (l *lab) checkPodStops(t *testing.T) {
	if err := l.Stop(t.Context(), "lb2", "agent"); err != nil {
		t.Fatal(err)
	}
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb3"})
	l.checkAlive(t)
	harness.Until(t, "the reflector has two clients", func() bool { return len(l.clients(t)) == 2 })
	if err := l.Restart(t.Context(), "lb2", "agent"); err != nil {
		t.Fatal(err)
	}
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
	l.checkAlive(t)
	l.checkUndisturbed(t, "lb1", "lb3")
}

// flaps returns how often the first sessions of balancers have ended.
func (l *lab) flaps(t *testing.T, balancers ...string) (ended []uint64) {
	t.Helper()
	for _, name := range balancers {
		ended = append(ended, l.Routes(t, name).Peers[0].Flaps)
	}
	return ended
}

// checkUndisturbed looks whether balancers' first sessions have never ended.
func (l *lab) checkUndisturbed(t *testing.T, balancers ...string) {
	t.Helper()
	for _, name := range balancers {
		if peer := l.Routes(t, name).Peers[0]; peer.State != bgp.Established || peer.Flaps > 0 {
			t.Errorf("%s: the session with %s is %s since %s and ended %d times, and BFD's %d times", name, peer.Address, peer.State, peer.Since, peer.Flaps, peer.BFDFlaps)
		}
	}
}

// A pod's agent that is killed keeps its next hop until the next one is there.
func (l *lab) checkPodKilled(t *testing.T) {
	steady := l.watchTable(t)
	h := l.State().Host("lb3")
	<-l.SignalAgent(t, h, unix.SIGKILL)
	l.checkAlive(t)
	l.StartAgent(t, h)
	harness.Until(t, "the reflector has three clients", func() bool { return len(l.clients(t)) == 3 })
	steady()
	l.checkUndisturbed(t, "lb1")
}

// watchTable is watchRoute for all balancers.
func (l *lab) watchTable(t *testing.T) (end func()) {
	t.Helper()
	var ends []func()
	for _, h := range l.Hosts(netlab.Balancer) {
		ends = append(ends, l.watchRoute(t, harness.VIP4, h.Name))
	}
	return func() {
		t.Helper()
		for _, end := range ends {
			end()
		}
	}
}

// A reflector that dies removes no route from the router, nor does the next one, which
// receives its clients' routes one after the other.
func (l *lab) checkReflectorKilled(t *testing.T) {
	steady := l.watchTable(t)
	if err := l.Kill(t.Context(), "reflector", "reflector"); err != nil {
		t.Fatal(err)
	}
	l.checkAlive(t)
	if err := l.Restart(t.Context(), "reflector", "reflector"); err != nil {
		t.Fatal(err)
	}
	l.awaitReflecting(t)
	l.checkAlive(t)
	steady()
}

// awaitReflecting waits until the router has received all routes.
func (l *lab) awaitReflecting(t *testing.T) {
	t.Helper()
	harness.Until(t, "the reflector has sent all routes to the router", func() bool {
		status, out, _ := harness.Fairlead(t, "routes", "-o", "json", "--socket", l.State().Host("reflector").Socket)
		if status != 0 {
			return false // it isn't there yet
		}
		var routes observe.Routes
		harness.Decode(t, out, &routes)
		return slices.ContainsFunc(routes.Peers, func(p bgp.PeerState) bool {
			return !p.Dynamic && p.State == bgp.Established && p.RoutesAnnounced == 6
		})
	})
}

// Of two reflectors either may hang: BFD takes its routes off the router, which
// has the same next hops from the other one.
func TestTwoReflectors(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD} {
		t.Run(string(router), func(t *testing.T) {
			t.Parallel()
			topology := harness.Routed(t, netlab.ECMPOptions{Router: router, Reflector: true})
			addReflector(&topology)
			l := bringUp(t, "two-"+string(router), topology)
			l.awaitReflectors(t)
			l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
			l.checkUnsigned(t, "lb1", "reflector")
			l.checkUnsigned(t, "reflector", "router")
			for _, host := range []string{"reflector", "server1"} {
				steady := l.watchTable(t)
				l.signalReflector(t, host, unix.SIGSTOP)
				l.checkAlive(t)
				harness.Until(t, "balancers have lost "+host, func() bool { return l.haveSessions(t, 1) })
				l.signalReflector(t, host, unix.SIGCONT)
				harness.Until(t, "balancers have both", func() bool { return l.haveSessions(t, 2) })
				l.awaitReflectors(t)
				steady()
			}
		})
	}
}

// addReflector lets the first server reflect too.
func addReflector(topology *netlab.Topology) {
	first, second := topology.Host("reflector"), topology.Host("server1")
	was, is := first.Interfaces[0].Addresses[0].Addr(), second.Interfaces[0].Addresses[0].Addr()
	second.Files = maps.Clone(second.Files)
	maps.Copy(second.Files, first.Files)
	second.Files[netlab.ReflectorFile] = strings.ReplaceAll(first.Files[netlab.ReflectorFile], was.String(), is.String())
	second.Processes = append(second.Processes, first.Processes...)
	second.Socket = first.Socket
	router := topology.Host("router")
	for name, text := range router.Files {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, line)
			if strings.Contains(line, "neighbor "+was.String()+" ") {
				lines = append(lines, strings.Replace(line, was.String(), is.String(), 1))
			}
		}
		router.Files[name] = strings.Join(lines, "")
	}
	for i := range topology.Hosts {
		if agent := topology.Hosts[i].Agent; agent != nil {
			peer := agent.BGP.Peers[0]
			peer.Address = is
			agent.BGP.Peers = append(agent.BGP.Peers, peer)
		}
	}
}

// awaitReflectors waits until both have sent all routes to the router, and BFD is up for
// all of their sessions.
func (l *lab) awaitReflectors(t *testing.T) {
	t.Helper()
	for _, host := range []string{"reflector", "server1"} {
		harness.Until(t, host+" is at work", func() bool {
			peers := l.Routes(t, host).Peers
			return len(peers) == 4 && !slices.ContainsFunc(peers, func(p bgp.PeerState) bool {
				return p.State != bgp.Established || p.BFD != bgp.BFDUp || !p.Dynamic && p.RoutesAnnounced != 6
			})
		})
	}
}

func (l *lab) signalReflector(t *testing.T, host string, signal unix.Signal) {
	t.Helper()
	if err := l.Signal(t.Context(), host, "reflector", signal); err != nil {
		t.Fatal(err)
	}
}

// haveSessions reports whether each balancer has so many sessions.
func (l *lab) haveSessions(t *testing.T, want int) bool {
	t.Helper()
	return !slices.ContainsFunc(l.Hosts(netlab.Balancer), func(h netlab.HostState) bool {
		up := 0
		for _, p := range l.Routes(t, h.Name).Peers {
			if p.State == bgp.Established {
				up++
			}
		}
		return up != want
	})
}
