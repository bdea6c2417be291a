// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// dsrForwarded is the way to a pod by its own node. Packets that other nodes relay
// are counted there.
const dsrForwarded = "forward_nat_handover"

// Nodes share a service's pods and relay to each other: pods see the clients, and answers
// pass only the pod's node.
func TestDSR(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "dsr", withLines(workers(t, lb.DSR, 3, false)))
	l.checkUnaware(t)
	checkForwarding := l.watchForwarding(t)
	harness.EachFamily(t, func(t *testing.T, vip string) {
		l.checkFamily(t, dsrForwarded, vip)
		t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
	})
	t.Run("refused", l.checkUnknownRefused)
	checkForwarding()
	t.Run("seen", l.checkClientsSeen)
	t.Run("hairpin", func(t *testing.T) {
		l.checkHairpin(t, harness.VIP4)
		l.checkHairpin(t, harness.VIP6)
	})
	t.Run("held", func(t *testing.T) { l.checkHeld(t, dsrForwarded) })
	t.Run("filtered", l.checkNothingInvalid)
}

// checkUnknownRefused sends on connections that no node has a session for. All are reset,
// wherever their packets are relayed to: the reset bypasses the node that relayed them,
// whose filter would drop it.
func (l *lab) checkUnknownRefused(t *testing.T) {
	const connections = 30
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		for i := range connections {
			// Not one of the ports that clients choose: it might be remembered.
			from := &net.TCPAddr{Port: 20000 + i}
			if err := l.Do("client", func() error { return speakUnknown(t.Context(), from, net.JoinHostPort(vip, "80")) }); !errors.Is(err, unix.ECONNRESET) {
				t.Fatalf("%s: %v, want a reset", vip, err)
			}
		}
	}
}

// speakUnknown sends on a connection that only the client has: a socket in repair mode
// connects without a handshake.
func speakUnknown(ctx context.Context, from *net.TCPAddr, address string) error {
	dialer := net.Dialer{LocalAddr: from, Control: func(_, _ string, c syscall.RawConn) error { return repair(c, unix.TCP_REPAIR_ON) }}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if err := repair(raw, unix.TCP_REPAIR_OFF); err != nil { // it asks for its peer's window
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		return err
	}
	// Data is retransmitted if a packet is lost on a busy machine.
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// Connections survive changes of the nodes by which they arrive, and of other pods.
func TestDSRThroughChanges(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "dsrchange", withLines(workers(t, lb.DSR, 3, false)))
	t.Run("rerouted", l.checkRerouted)
	t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, dsrForwarded) })
	t.Run("drained", l.checkDrained)
	t.Run("rerouted after changes", l.checkRerouted)
}

// A node is lost: all connections but those to its own pods continue.
func TestDSRWithoutANode(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "dsrlost", withLines(workers(t, lb.DSR, 3, false)))
	l.checkNodeLost(t)
}

// A node is behind the router, among others on one network: it and they translate for
// each other's pods, which see the balancer, and the others relay to each other.
func TestDSRBeyond(t *testing.T) {
	t.Parallel()
	const forwarded = "forward_nat+forward_nat_handover"
	topology, err := netlab.Nodes(netlab.NodesOptions{Forward: lb.DSR, Nodes: 3, Beyond: true})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "dsrbeyond", withLines(topology))
	l.checkUnaware(t)
	harness.EachFamily(t, func(t *testing.T, vip string) {
		l.checkFamily(t, forwarded, vip)
		t.Run("bulk", func(t *testing.T) { l.checkBulk(t, vip) })
		t.Run("seen", func(t *testing.T) { l.checkClientsSeenBeyond(t, vip) })
		t.Run("hairpin", func(t *testing.T) { l.checkHairpin(t, vip) })
	})
	t.Run("killed", func(t *testing.T) { l.checkAllKilled(t, forwarded) })
	t.Run("rerouted among neighbours", l.checkReroutedAmongNeighbours)
	t.Run("filtered", l.checkNothingInvalid)
}

// checkClientsSeenBeyond has servers say who asks: the client by way of the node that
// has the pod, or a neighbour of it, and else the balancer.
func (l *lab) checkClientsSeenBeyond(t *testing.T, vip string) {
	client := map[string]string{harness.VIP4: "10.0.1.2", harness.VIP6: "fd00:1::2"}[vip]
	balancers := map[string][]string{
		harness.VIP4: {"10.0.2.11", "10.0.2.12", "10.0.4.13"}, harness.VIP6: {"fd00:2::11", "fd00:2::12", "fd00:4::13"},
	}[vip]
	for n, own := range balancers {
		l.spread(t, fmt.Sprintf("lb%d", n+1))
		seen := l.Gets(t, "client", harness.Origin(vip)+"client", 60)
		l.SettledTotals(t) // who is moved while it closes would go on knocking
		if seen[client] == 0 || seen[own] == 0 || seen[client]+seen[own] != 60 {
			t.Errorf("by lb%d servers have seen %v, want %s and %s", n+1, seen, client, own)
		}
	}
	l.spread(t, "lb1", "lb2", "lb3")
}

// checkReroutedAmongNeighbours changes by which of the neighbours packets come: all
// connections go on, as the segments of those that one of them translates are asked
// around between them.
func (l *lab) checkReroutedAmongNeighbours(t *testing.T) {
	l.spread(t, "lb1", "lb2")
	c := l.crowd(t, moved)
	for _, by := range [][]string{{"lb1"}, {"lb2"}, {"lb2", "lb1"}, {"lb1", "lb2"}} {
		l.spread(t, by...)
		c.speak(t)
	}
	c.close()
	l.SettledTotals(t)
	l.spread(t, "lb1", "lb2", "lb3")
}

// spread has the router spread the VIPs over some balancers.
func (l *lab) spread(t *testing.T, balancers ...string) {
	t.Helper()
	for family, vip := range []string{harness.VIP4, harness.VIP6} {
		r := netlab.Route{Destination: netip.PrefixFrom(netip.MustParseAddr(vip), netip.MustParseAddr(vip).BitLen())}
		for _, name := range balancers {
			own := l.Topology.Host(name).Interfaces
			i := slices.IndexFunc(own, func(i netlab.Interface) bool { return i.Name == "eth0" })
			r.Gateways = append(r.Gateways, own[i].Addresses[family].Addr())
		}
		l.Run(t, "router", append([]string{"ip", "route", "replace"}, strings.Fields(r.String())...)...)
	}
}

// checkRerouted changes by which nodes packets come, again and again, under load.
func (l *lab) checkRerouted(t *testing.T) {
	l.CheckPackets(t, dsrForwarded, func() {
		c := l.crowd(t, moved)
		c.during(t, func(heard func()) {
			for _, by := range [][]string{{"lb1"}, {"lb2", "lb3"}, {"lb3"}, {"lb2"}, {"lb3", "lb1"}, {"lb1", "lb2", "lb3"}} {
				l.spread(t, by...)
				heard()
			}
		})
		c.close()
	})
}

// checkNodeLost takes a node off the network: connections to other nodes' pods go
// on, and new ones begin.
func (l *lab) checkNodeLost(t *testing.T) {
	c := l.crowd(t, moved)
	c.leave("pod3-")
	c.speak(t)
	if err := l.Cut("lb3"); err != nil {
		t.Fatal(err)
	}
	l.spread(t, "lb1", "lb2")
	c.speak(t)
	c.during(t, func(heard func()) { heard() })
}
