// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp/reflector"
)

// With TTL security packets of a client that is too far away are dropped, though its
// connection was accepted before that was known.
func TestClientIsFurtherAwayThanAllowed(t *testing.T) {
	config := settings()
	config.Clients[0].TTLSecurity = 1
	r := start(t, config, "")
	far := call(t, 11) // and says nothing before the reflector has seen it: after it come others
	connectNearby(t, r, 12)
	far.send(open, far.open(restarting))
	far.send(keepalive, nil)
	connectNearby(t, r, 13)
	if got := identities(r); !slices.Equal(got, []string{"127.0.1.12 10.0.2.12", "127.0.1.13 10.0.2.13"}) {
		t.Errorf("clients are %q", got)
	}
}

// connectNearby connects a client whose packets have passed no router.
func connectNearby(t *testing.T, r *reflector.Reflector, n int) {
	t.Helper()
	c := call(t, n)
	setHops(t, c, 255)
	c.send(open, c.open(restarting))
	c.send(keepalive, nil)
	await(t, "session", func() bool { return established(r, clientAddress(n)) })
}

// setHops sets the hop limit of what a client sends.
func setHops(t *testing.T, c *client, hops int) {
	t.Helper()
	raw, err := c.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, hops) })
	if failed != nil || err != nil {
		t.Fatal(failed, err)
	}
}

// A client that announces a loopback address as next hop is refused: the library
// accepts such next hops on its own loopback connections.
func TestLoopbackNextHop(t *testing.T) {
	start(t, settings(), "")
	c := connect(t, 11, restarting)
	c.update(nil, []byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 0, // AS_PATH, empty
		0x40, 3, 4, 127, 0, 0, 1, // NEXT_HOP
		0x40, 5, 4, 0, 0, 0, 100, // LOCAL_PREF
	}, reach(netip.MustParsePrefix(vip4)))
	if said := c.awaitEnd(); !bytes.Equal(said, []byte{3, 8}) {
		t.Errorf("NOTIFICATION % x, want invalid NEXT_HOP", said)
	}
}
