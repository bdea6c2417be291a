// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Packets that a client's kernel sends outside of the usual order reach the
// balancer that has the session, too, as the router spreads flows by headers only.
// A kernel that forwards a packet of its own machine knows the sender's socket as
// well, whose hash changes when a segment is repeated (sk_rethink_txhash), and
// which a reset without a socket doesn't have.
func TestNATOfTroubledClients(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "nattrouble", withLines(harness.ECMP(t, lb.NAT)))
	t.Run("repeats", l.checkRepeats)
	t.Run("vanishes", l.checkVanishes)
}

// checkRepeats takes a server off the network until clients have repeated
// segments: all connections go on.
func (l *lab) checkRepeats(t *testing.T) {
	server := l.Hosts(netlab.Server)[0].Name
	repeated := func() uint64 {
		counters := harness.Kernel(t, l.Lab, "client")
		return counters["TcpRetransSegs"]
	}
	c := l.crowd(t, 200)
	defer c.close()
	stalled := uint64(c.byServer()[server])
	if stalled == 0 {
		t.Fatalf("%s has no connection", server)
	}
	c.during(t, func(heard func()) {
		heard()
		before := repeated()
		if err := l.Cut(server); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "every client of the server has repeated something", func() bool { return repeated()-before > 2*stalled })
		if err := l.Mend(server); err != nil {
			t.Fatal(err)
		}
		heard()
	})
}

// checkVanishes drops the connections of clients, as a restart does. Servers that then
// send get a reset.
func (l *lab) checkVanishes(t *testing.T) {
	l.CheckPackets(t, "forward_nat", func() {
		for _, m := range l.crowd(t, held).members {
			if err := vanish(m.Conn); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range l.Hosts(netlab.Server) {
			if err := l.Kill(t.Context(), h.Name, "echo"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// vanish closes a TCP connection without sending anything: a socket in repair mode does
// so (tcp_close).
func vanish(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(repair(raw, unix.TCP_REPAIR_ON), c.Close())
}

// repair begins or ends the repair of a TCP socket.
func repair(c syscall.RawConn, mode int) error {
	var repaired error
	err := c.Control(func(fd uintptr) {
		repaired = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, mode)
	})
	return errors.Join(err, repaired)
}
