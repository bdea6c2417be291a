// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

// patience is how long a peer may take to answer: long enough for two more SYNs.
const patience = 4 * time.Second

// Dial connects to a peer. The password is read anew each time. Errors are in words
// for an operator who knows who the peer is.
func Dial(ctx context.Context, local bgp.Local, peer *bgp.Peer) (*net.TCPConn, error) {
	keys := Keys{}
	if err := keys.Add(Host(peer.Address), peer.Password); err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		for to, key := range keys {
			if err := setKey(raw, to, key); err != nil {
				return err
			}
		}
		return setHops(raw, local, peer)
	}}
	dialer.SetMultipathTCP(false) // it takes no signatures
	if peer.LocalAddress.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.LocalAddress, 0))
	}
	port := peer.Port
	if port == 0 {
		port = bgp.Port
	}
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(peer.Address, port).String())
	if err != nil {
		return nil, plain(err, peer, len(keys) > 0)
	}
	return conn.(*net.TCPConn), nil
}

// plain leaves out what package net says of addresses.
func plain(err error, peer *bgp.Peer, signed bool) error {
	timeout, isNet := errors.AsType[net.Error](err)
	switch number, isNumber := errors.AsType[unix.Errno](err); {
	case isNet && timeout.Timeout():
		return silence(peer, signed)
	case isNumber:
		return number
	}
	return err
}

// silence names what it may mean that a peer is silent: the kernel drops what isn't
// signed right, and what comes from too far away.
func silence(peer *bgp.Peer, signed bool) error {
	causes := "unreachable, or it wants a password"
	if signed {
		causes = "wrong password, or unreachable"
	}
	if peer.TTLSecurity > 0 {
		causes = "further away than TTL security allows, " + causes
	}
	return errors.New("timed out: " + causes)
}
