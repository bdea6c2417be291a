// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// hops is the hop limit that packets leave with. Peers with TTL security take no
// other (RFC 5082), already of the answer to their first packet, when nobody knows
// yet who they are.
const hops = 255

// setHops sets the hop limit of a socket.
func setHops(conn syscall.RawConn, a netip.Addr) error {
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if a.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	return control(conn, "hop limit", func(fd int) error { return unix.SetsockoptInt(fd, level, option, hops) })
}

// setKey has segments from and to a prefix signed (RFC 2385). The empty key takes
// the prefix's away.
func setKey(conn syscall.RawConn, from netip.Prefix, key string) error {
	return control(conn, "TCP MD5 key of "+from.String(), func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT, string(md5sig(from, key)))
	})
}

func control(conn syscall.RawConn, what string, set func(fd int) error) error {
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = set(int(fd)) }); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if failed != nil {
		return fmt.Errorf("%s: %w", what, failed)
	}
	return nil
}

// md5sig is struct tcp_md5sig of linux/tcp.h, whose flag for prefixes Linux has
// since 4.13: the address as a struct sockaddr_storage, the flag, the prefix's
// length, the key's length, an interface, the key.
func md5sig(from netip.Prefix, key string) []byte {
	const (
		storage   = 128 // sizeof(struct sockaddr_storage)
		maxKey    = 80  // TCP_MD5SIG_MAXKEYLEN
		flags     = storage
		length    = storage + 1
		keyLength = storage + 2
		keyAt     = storage + 8
		// In struct sockaddr_in the address stands behind the port, in struct
		// sockaddr_in6 behind the port and the flow label.
		addr4, addr6 = 4, 8
	)
	b := make([]byte, keyAt+maxKey)
	family, at := uint16(unix.AF_INET), addr4
	if from.Addr().Is6() {
		family, at = unix.AF_INET6, addr6
	}
	binary.NativeEndian.PutUint16(b, family)
	copy(b[at:], from.Addr().AsSlice())
	b[flags], b[length] = unix.TCP_MD5SIG_FLAG_PREFIX, byte(from.Bits())
	binary.NativeEndian.PutUint16(b[keyLength:], uint16(len(key)))
	copy(b[keyAt:], key)
	return b
}
