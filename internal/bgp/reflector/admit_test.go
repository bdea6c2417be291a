// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// With TTL security a client whose packets have come a longer way isn't heard,
// though its connection was taken before that was known.
func TestClientIsFurtherAwayThanAllowed(t *testing.T) {
	config := settings()
	config.Clients[0].TTLSecurity = 1
	r := start(t, config, "")
	connect(t, 11, restarting)
	near := call(t, 12)
	setHops(t, near, 255)
	near.send(open, near.open(restarting))
	near.send(keepalive, nil)
	await(t, "session", func() bool { return established(r, clientAddress(12)) })
	if got := identities(r); !slices.Equal(got, []string{"127.0.1.12 10.0.2.12"}) {
		t.Errorf("clients are %q", got)
	}
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
