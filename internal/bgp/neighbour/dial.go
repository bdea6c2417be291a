// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// dialTimeout is how long a peer may take to answer: long enough for two more SYNs.
const dialTimeout = 4 * time.Second

// dial connects to the peer. The password is read anew each time.
func dial(ctx context.Context, local bgp.Local, peer *bgp.Peer) (*net.TCPConn, error) {
	password := ""
	if peer.Password != (bgp.Secret{}) {
		var err error
		if password, err = peer.Password.Read(); err != nil {
			return nil, err
		}
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		if password != "" {
			if err := setPassword(raw, peer.Address, password); err != nil {
				return err
			}
		}
		return setHops(raw, local, peer)
	}}
	d.SetMultipathTCP(false) // which takes no signatures
	if peer.LocalAddress.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.LocalAddress, 0))
	}
	port := peer.Port
	if port == 0 {
		port = bgp.Port
	}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(peer.Address, port).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// unreached says why the peer couldn't be connected to.
func unreached(err error, peer *bgp.Peer) string {
	switch timeout := net.Error(nil); {
	case errors.As(err, &timeout) && timeout.Timeout() && peer.Password != (bgp.Secret{}):
		return "timed out: wrong password, or unreachable"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return "timed out: unreachable, or it wants a password"
	}
	return gobgp.Cause(err)
}
