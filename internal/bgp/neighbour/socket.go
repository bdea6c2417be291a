// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

// maxTTL is the highest time to live there is.
const maxTTL = 255

// setHops says how far packets of a socket go, and how far those may have come
// that it takes (RFC 5082 §3).
func setHops(raw syscall.RawConn, local bgp.Local, peer *bgp.Peer) error {
	sent, least := int(peer.TTL(local)), 0
	if peer.TTLSecurity > 0 {
		least = maxTTL + 1 - int(peer.TTLSecurity)
	}
	level, ttl, minimum := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL
	if peer.Address.Is6() {
		level, ttl, minimum = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	}
	return control(raw, func(fd int) error {
		if sent != 0 {
			if err := unix.SetsockoptInt(fd, level, ttl, sent); err != nil {
				return fmt.Errorf("time to live: %w", err)
			}
		}
		if least != 0 {
			if err := unix.SetsockoptInt(fd, level, minimum, least); err != nil {
				return fmt.Errorf("TTL security: %w", err)
			}
		}
		return nil
	})
}

// setPassword has the kernel sign what a socket sends to addr, and drop what isn't
// signed by it (RFC 2385); an empty password ends that.
func setPassword(raw syscall.RawConn, addr netip.Addr, password string) error {
	sig := &unix.TCPMD5Sig{Keylen: uint16(len(password))}
	copy(sig.Key[:], password)
	if addr.Is4() { // a sockaddr_in without its family, or a sockaddr_in6
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], addr.AsSlice())
	} else {
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], addr.AsSlice())
	}
	return control(raw, func(fd int) error {
		err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig)
		if password == "" && err == unix.ENOENT { // there was none
			return nil
		}
		return os.NewSyscallError("TCP_MD5SIG", err)
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
