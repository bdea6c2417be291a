// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// link is what peers have in common that are heard on one port.
type link struct {
	// multihop is RFC 5883's, without it RFC 5881's.
	multihop, v6 bool
}

// Ports and hop limits of RFC 5881 §4, §5 and RFC 5883 §5.
const (
	singleHopPort = 3784
	multihopPort  = 4784
	firstSource   = 49152
	lastSource    = 65535
	hopLimit      = 255
)

// internetworkControl is the traffic class of routing protocols (CS6, RFC 4594
// §3.1), so that queues prefer their packets.
const internetworkControl = 48 << 2

func (l link) port() uint16 {
	if l.multihop {
		return multihopPort
	}
	return singleHopPort
}

func (l link) network() string {
	if l.v6 {
		return "udp6"
	}
	return "udp4"
}

func (l link) wildcard() netip.Addr {
	if l.v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// prepare sets a socket's options before it is bound.
func (l link) prepare(_, _ string, raw syscall.RawConn) error {
	level, options := unix.IPPROTO_IP, []struct{ name, value int }{
		{unix.IP_TTL, hopLimit}, {unix.IP_TOS, internetworkControl}, {unix.IP_RECVTTL, 1},
	}
	if l.v6 {
		level, options = unix.IPPROTO_IPV6, []struct{ name, value int }{
			{unix.IPV6_UNICAST_HOPS, hopLimit}, {unix.IPV6_TCLASS, internetworkControl}, {unix.IPV6_RECVHOPLIMIT, 1},
		}
	}
	var err error
	failed := raw.Control(func(fd uintptr) {
		for _, o := range options {
			err = errors.Join(err, unix.SetsockoptInt(int(fd), level, o.name, o.value))
		}
	})
	return errors.Join(failed, err)
}

// socket is a UDP socket that is read and written without waiting.
type socket struct {
	conn *net.UDPConn
	raw  syscall.RawConn
}

func newSocket(conn *net.UDPConn) (*socket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &socket{conn: conn, raw: raw}, nil
}

// listen opens the port on which peers are heard.
func (l link) listen() (*socket, error) {
	config := net.ListenConfig{Control: l.prepare}
	conn, err := config.ListenPacket(context.Background(), l.network(), netip.AddrPortFrom(l.wildcard(), l.port()).String())
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("udp port %d is in use: another BFD daemon may run here", l.port())
	}
	if err != nil {
		return nil, fmt.Errorf("udp port %d: %w", l.port(), cause(err))
	}
	return newSocket(conn.(*net.UDPConn))
}

// dial opens the socket from which one session's packets are sent: its own source
// port, which stays while the session lives (RFC 5881 §4). It is preferred if not 0.
func (l link) dial(local, peer netip.Addr, preferred uint16) (*socket, uint16, error) {
	if !local.IsValid() {
		local = l.wildcard()
	}
	const tries = 64
	dialer := net.Dialer{Control: l.prepare}
	for try := 0; ; try++ {
		port := preferred
		if port == 0 || try > 0 {
			port = uint16(firstSource + rand.IntN(lastSource-firstSource+1))
		}
		conn, err := dialer.DialUDP(context.Background(), l.network(), netip.AddrPortFrom(local, port), netip.AddrPortFrom(peer, l.port()))
		if errors.Is(err, unix.EADDRINUSE) && try < tries {
			continue
		}
		if err != nil {
			return nil, 0, cause(err)
		}
		s, err := newSocket(conn)
		return s, port, err
	}
}

// cause leaves the addresses out of the net package's errors.
func cause(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}

// send sends a datagram to the session's peer, or drops it if the socket's buffer
// is full.
func (s *socket) send(b []byte) error {
	var err error
	if failed := s.raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), b) }); failed != nil {
		return failed
	}
	return err
}

// datagram is one that a listener's socket received, from whom and with which hop
// limit (TTL).
type datagram struct {
	payload []byte
	from    netip.Addr
	hops    int
}

// receiveBuffer is room for a datagram; a control packet has 255 bytes at most.
type receiveBuffer struct {
	payload [512]byte
	control [64]byte
}

// receive returns the next datagram that has arrived; none is unix.EAGAIN. It is
// valid until the next one.
func (s *socket) receive(into *receiveBuffer) (datagram, error) {
	var n, oobn int
	var from unix.Sockaddr
	var err error
	failed := s.raw.Control(func(fd uintptr) {
		n, oobn, _, from, err = unix.Recvmsg(int(fd), into.payload[:], into.control[:], unix.MSG_DONTWAIT)
	})
	if err = errors.Join(failed, err); err != nil {
		return datagram{}, err
	}
	d := datagram{payload: into.payload[:n], hops: hops(into.control[:oobn])}
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		d.from = netip.AddrFrom4(from.Addr)
	case *unix.SockaddrInet6:
		d.from = netip.AddrFrom16(from.Addr)
	}
	return d, nil
}

// hops reads the hop limit from a datagram's control messages; -1 if there is none.
func hops(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return -1
	}
	for _, m := range messages {
		ttl := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL
		limit := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT
		// The kernel puts an int in its own byte order there.
		if (ttl || limit) && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return -1
}

func (s *socket) close() error { return s.conn.Close() }
