// SPDX-License-Identifier: Apache-2.0

// Package tcp makes the connections of BGP sessions: signed by passwords (RFC
// 2385), with the hop limits of TTL security (RFC 5082), called or waited for.
// The library could make them too, but would do so late, and not say why it can't.
package tcp

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

// maxHops is the highest hop limit there is.
const maxHops = 255

// options are a family's names of what is set.
type options struct{ level, hops, minimum int }

func optionsOf(addr netip.Addr) options {
	if addr.Is4() {
		return options{unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL}
	}
	return options{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT}
}

// SetHops says how far packets to a peer go, and how far away those may come from
// that the socket takes (RFC 5082 §3).
func SetHops(conn syscall.Conn, local bgp.Local, peer *bgp.Peer) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return setHops(raw, local, peer)
}

func setHops(raw syscall.RawConn, local bgp.Local, peer *bgp.Peer) error {
	o := optionsOf(peer.Address)
	return control(raw, func(fd int) error {
		if hops := peer.TTL(local); hops != 0 {
			if err := unix.SetsockoptInt(fd, o.level, o.hops, int(hops)); err != nil {
				return fmt.Errorf("hop limit: %w", err)
			}
		}
		if peer.TTLSecurity != 0 {
			if err := unix.SetsockoptInt(fd, o.level, o.minimum, maxHops+1-int(peer.TTLSecurity)); err != nil {
				return fmt.Errorf("TTL security: %w", err)
			}
		}
		return nil
	})
}

// setKey has the kernel sign what a socket sends to a prefix, and drop what comes
// from there unsigned (RFC 2385). The empty key takes the prefix's away.
func setKey(raw syscall.RawConn, to netip.Prefix, key string) error {
	sig := &unix.TCPMD5Sig{
		Flags: unix.TCP_MD5SIG_FLAG_PREFIX, Prefixlen: uint8(to.Bits()), Keylen: uint16(len(key)),
	}
	copy(sig.Key[:], key)
	// Behind the family, a sockaddr_in has the port first, and a sockaddr_in6 also
	// the flow label.
	if addr := to.Addr(); addr.Is4() {
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], addr.AsSlice())
	} else {
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], addr.AsSlice())
	}
	return control(raw, func(fd int) error {
		err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT, sig)
		if err != nil {
			return fmt.Errorf("password of %s: %w", to, os.NewSyscallError("TCP_MD5SIG_EXT", err))
		}
		return nil
	})
}

// control runs set on a socket.
func control(raw syscall.RawConn, set func(fd int) error) error {
	var err error
	if e := raw.Control(func(fd uintptr) { err = set(int(fd)) }); e != nil {
		return e
	}
	return err
}
