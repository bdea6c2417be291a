// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

const (
	// maxTTL is the highest TTL or hop limit.
	maxTTL = 255
	// dialTimeout is how long a peer may take to accept a connection: long enough for
	// two more SYNs.
	dialTimeout = 4 * time.Second
	// acceptPause is the pause after a connection could not be accepted.
	acceptPause = 100 * time.Millisecond
	// pollInterval is how often passwords of passive peers are read again: the kernel
	// needs them before the peers connect.
	pollInterval = 2 * time.Second
)

// Conn is a TCP connection, or one in memory in tests.
type Conn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// Dial connects to a peer, with its password and TTL security. Errors are for an
// operator who knows which peer it is.
func Dial(ctx context.Context, local bgp.Local, peer *bgp.Peer) (Conn, error) {
	keys := Keys{}
	if err := keys.Add(HostPrefix(peer.Address), peer.Password); err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		for to, key := range keys {
			if err := setKey(raw, to, key); err != nil {
				return err
			}
		}
		return setTTL(raw, local, peer)
	}}
	dialer.SetMultipathTCP(false) // it has no MD5 signatures
	if peer.LocalAddress.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.LocalAddress, 0))
	}
	to := netip.AddrPortFrom(peer.Address, cmp.Or(peer.Port, bgp.Port))
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, dialError(err, peer, len(keys) > 0)
	}
	return conn.(Conn), nil
}

// dialError drops the addresses of package net's errors. For a timeout it names the
// possible causes: the kernel drops packets with a wrong signature or TTL.
func dialError(err error, peer *bgp.Peer, signed bool) error {
	timeout, isNet := errors.AsType[net.Error](err)
	number, isNumber := errors.AsType[unix.Errno](err)
	switch {
	case isNet && timeout.Timeout():
		causes := "unreachable, or it wants a password"
		if signed {
			causes = "wrong password, or unreachable"
		}
		if peer.TTLSecurity > 0 {
			causes = "further away than TTL security allows, " + causes
		}
		return errors.New("timed out: " + causes)
	case isNumber:
		return number
	}
	return err
}

// Keys are passwords by the prefixes of the peers that use them.
type Keys map[netip.Prefix]string

// Add reads the password of the peers in a prefix, if they have one.
func (k Keys) Add(from netip.Prefix, password bgp.Secret) error {
	if password == (bgp.Secret{}) {
		return nil
	}
	key, err := password.Read()
	if err == nil {
		k[from] = key
	}
	return err
}

// HostPrefix is the prefix with one address.
func HostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// Listener accepts connections at some addresses. The kernel checks their passwords.
type Listener struct {
	log    *slog.Logger
	keys   func() (Keys, error)
	accept func(Conn)
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu        sync.Mutex
	addresses []netip.AddrPort
	sockets   map[netip.AddrPort]*socket
}

// socket listens at one address.
type socket struct {
	*net.TCPListener
	keys Keys // those that are set
}

// NewListener returns a Listener without addresses. Close ends it. keys returns the
// passwords of all that may connect. Besides an error, it may return the others; nil
// changes nothing. It is called at intervals, as the kernel needs a changed password
// before a peer connects. accept takes each connection.
func NewListener(log *slog.Logger, keys func() (Keys, error), accept func(Conn)) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{log: log, keys: keys, accept: accept, cancel: cancel, sockets: make(map[netip.AddrPort]*socket)}
	l.work.Go(func() { l.poll(ctx) })
	return l
}

// Set makes addresses those that are listened at.
func (l *Listener) Set(ctx context.Context, addresses ...netip.AddrPort) error {
	l.mu.Lock()
	l.addresses = addresses
	l.mu.Unlock()
	return l.Update(ctx)
}

// Update sets the current passwords for later connections, and opens missing sockets.
func (l *Listener) Update(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, s := range l.sockets {
		if !slices.Contains(l.addresses, at) {
			s.Close()
			delete(l.sockets, at)
		}
	}
	if len(l.addresses) == 0 {
		return nil
	}
	keys, err := l.keys()
	if err != nil && keys == nil {
		return err // before it listens without passwords
	}
	for _, at := range l.addresses {
		s := l.sockets[at]
		if s == nil {
			err = errors.Join(err, l.open(ctx, at, keys))
			continue
		}
		raw, e := s.SyscallConn()
		if e == nil {
			e = s.set(raw, at.Addr(), keys)
		}
		err = errors.Join(err, e)
	}
	return err
}

// poll calls Update until ctx ends. A repeated error is logged once.
func (l *Listener) poll(ctx context.Context) {
	logged := ""
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := l.Update(ctx)
		if err != nil && err.Error() != logged {
			l.log.Warn("bgp sockets not updated", "error", err)
		}
		logged = fmt.Sprint(err)
	}
}

// Close ends the Listener. Accepted connections stay open.
func (l *Listener) Close() {
	l.cancel()
	_ = l.Set(context.Background()) // nothing to listen at
	l.work.Wait()
}

// open listens at an address. It replies with the maximum TTL, which peers with TTL
// security require before it is known who connects.
func (l *Listener) open(ctx context.Context, at netip.AddrPort, keys Keys) error {
	s := &socket{keys: Keys{}}
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		o := ttlOptionsOf(at.Addr())
		err := control(raw, func(fd int) error { return unix.SetsockoptInt(fd, o.level, o.ttl, maxTTL) })
		return errors.Join(err, s.set(raw, at.Addr(), keys))
	}}
	config.SetMultipathTCP(false) // it has no MD5 signatures
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	listener, err := config.Listen(ctx, network, at.String())
	if err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	s.TCPListener = listener.(*net.TCPListener)
	l.sockets[at] = s
	l.work.Go(func() { l.run(s.TCPListener) })
	return nil
}

// run hands connections over until the socket is closed.
func (l *Listener) run(tcp *net.TCPListener) {
	for failing := false; ; {
		conn, err := tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as a shortage of file descriptors, which may end
			if !failing {
				l.log.Warn("connection not accepted", "at", tcp.Addr(), "error", err)
			}
			time.Sleep(acceptPause)
		default:
			l.accept(conn)
		}
		failing = err != nil
	}
}

// set adds missing keys of the socket's family and removes unwanted ones.
func (s *socket) set(raw syscall.RawConn, at netip.Addr, keys Keys) error {
	for from := range s.keys {
		if _, wanted := keys[from]; wanted {
			continue
		}
		if err := setKey(raw, from, ""); err != nil {
			return err
		}
		delete(s.keys, from)
	}
	for from, key := range keys {
		if from.Addr().Is4() != at.Is4() || s.keys[from] == key {
			continue
		}
		if err := setKey(raw, from, key); err != nil {
			return err
		}
		s.keys[from] = key
	}
	return nil
}

// ttlOptions are the names of a family's socket options.
type ttlOptions struct{ level, ttl, minimum int }

func ttlOptionsOf(addr netip.Addr) ttlOptions {
	if addr.Is4() {
		return ttlOptions{unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL}
	}
	return ttlOptions{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT}
}

// SetTTL sets the TTL of packets to a peer, and the minimum of those from it (RFC
// 5082 §3).
func SetTTL(conn syscall.Conn, local bgp.Local, peer *bgp.Peer) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return setTTL(raw, local, peer)
}

func setTTL(raw syscall.RawConn, local bgp.Local, peer *bgp.Peer) error {
	o := ttlOptionsOf(peer.Address)
	return control(raw, func(fd int) error {
		if ttl := peer.TTL(local); ttl != 0 {
			if err := unix.SetsockoptInt(fd, o.level, o.ttl, int(ttl)); err != nil {
				return fmt.Errorf("TTL: %w", err)
			}
		}
		if peer.TTLSecurity != 0 {
			if err := unix.SetsockoptInt(fd, o.level, o.minimum, maxTTL+1-int(peer.TTLSecurity)); err != nil {
				return fmt.Errorf("TTL security: %w", err)
			}
		}
		return nil
	})
}

// setKey has the kernel sign a socket's segments to a prefix, and drop unsigned
// ones from there (RFC 2385). The empty key removes the prefix's.
func setKey(raw syscall.RawConn, to netip.Prefix, key string) error {
	sig := &unix.TCPMD5Sig{
		Flags: unix.TCP_MD5SIG_FLAG_PREFIX, Prefixlen: uint8(to.Bits()), Keylen: uint16(len(key)),
	}
	copy(sig.Key[:], key)
	// After the family, a sockaddr_in has the port first, and a sockaddr_in6 also the
	// flow label.
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
	failed := raw.Control(func(fd uintptr) { err = set(int(fd)) })
	return cmp.Or(failed, err)
}
