// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// link has the properties that the peers of one port share.
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

// internetworkControl is the traffic class of routing protocols (CS6, RFC 4594 §3.1).
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
		{unix.IP_TTL, hopLimit}, {unix.IP_TOS, internetworkControl}, {unix.IP_RECVTTL, 1}, {unix.IP_PKTINFO, 1},
	}
	if l.v6 {
		level, options = unix.IPPROTO_IPV6, []struct{ name, value int }{
			{unix.IPV6_UNICAST_HOPS, hopLimit}, {unix.IPV6_TCLASS, internetworkControl},
			{unix.IPV6_RECVHOPLIMIT, 1}, {unix.IPV6_RECVPKTINFO, 1},
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

// socket is a non-blocking UDP socket.
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

// listen opens the port for all peers.
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

// dial opens the socket that sends one session's packets. It has a source port of its
// own as long as the session lives (RFC 5881 §4): preferred, if that isn't 0 or used.
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

// cause drops the addresses of package net's errors.
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
	failed := s.raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), b) })
	return cmp.Or(failed, err)
}

// datagram is a received datagram with its source, hop limit (TTL) and the index of the
// interface that it came through.
type datagram struct {
	payload      []byte
	from         netip.Addr
	hops, device int
}

// receiveBuffer holds a datagram; a control packet has 255 bytes at most.
type receiveBuffer struct {
	payload [512]byte
	control [128]byte
}

// receive returns the next datagram, valid until the next call, or unix.EAGAIN.
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
	d := datagram{payload: into.payload[:n]}
	d.hops, d.device = arrival(into.control[:oobn])
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		d.from = netip.AddrFrom4(from.Addr)
	case *unix.SockaddrInet6:
		d.from = netip.AddrFrom16(from.Addr)
	}
	return d, nil
}

// arrival reads hop limit and interface from a datagram's control messages; -1 if there is
// none.
func arrival(control []byte) (hops, device int) {
	hops, device = -1, -1
	messages, _ := unix.ParseSocketControlMessage(control) // the kernel's
	for _, m := range messages {
		at := 0 // of an int in the kernel's byte order
		to := &hops
		switch [2]int32{m.Header.Level, m.Header.Type} {
		case [2]int32{unix.IPPROTO_IP, unix.IP_TTL}, [2]int32{unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}:
		case [2]int32{unix.IPPROTO_IP, unix.IP_PKTINFO}: // struct in_pktinfo begins with it
			to = &device
		case [2]int32{unix.IPPROTO_IPV6, unix.IPV6_PKTINFO}: // in struct in6_pktinfo after the address
			at, to = 16, &device
		default:
			continue
		}
		if len(m.Data) >= at+4 {
			*to = int(binary.NativeEndian.Uint32(m.Data[at:]))
		}
	}
	return hops, device
}

func (s *socket) close() error { return s.conn.Close() }

// setRealtime locks the goroutine to its thread and gives that the lowest real-time
// priority (sched(7)), so that neither a busy machine nor a busy agent delays packets.
// The thread ends with the goroutine; threads that it starts are not affected.
func setRealtime() error {
	runtime.LockOSThread()
	attributes := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	if err := unix.SchedSetAttr(0, &attributes, 0); err != nil {
		return fmt.Errorf("real-time priority: %w", err)
	}
	return nil
}

// unsetRealtime undoes setRealtime for the process's first thread, which the runtime
// keeps when its goroutine has ended.
func unsetRealtime() {
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0) // lowering it is always allowed
}

// yieldCPU lets other threads run for a moment, so that a flood of packets doesn't take
// the CPU by the thread's priority.
func yieldCPU() {
	moment := unix.NsecToTimespec(int64(time.Millisecond))
	_ = unix.Nanosleep(&moment, nil) // a shorter one is as good
}

// waiter waits for a socket in its own thread: Go's poller would wake it through a
// thread without its priority.
type waiter struct {
	in *socket
	// event is an eventfd(2).
	event int
}

func newWaiter(in *socket) (*waiter, error) {
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &waiter{in: in, event: event}, nil
}

// wait returns when there is something to receive, at the deadline, or after wake.
func (w *waiter) wait(deadline time.Time) error {
	timeout := unix.NsecToTimespec(int64(max(0, time.Until(deadline))))
	var err error
	failed := w.in.raw.Control(func(fd uintptr) {
		files := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(w.event), Events: unix.POLLIN}}
		_, err = unix.Ppoll(files, &timeout, nil)
		if files[1].Revents != 0 {
			var count [8]byte
			_, _ = unix.Read(w.event, count[:]) // resets it
		}
	})
	if errors.Is(err, unix.EINTR) {
		err = nil
	}
	return errors.Join(failed, err)
}

// wake makes wait return, even if it is called later.
func (w *waiter) wake() {
	one := [8]byte{0: 1, 7: 1} // not zero in any byte order
	_, _ = unix.Write(w.event, one[:])
}

func (w *waiter) close() { _ = unix.Close(w.event) }
