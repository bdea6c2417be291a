// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// listener takes connections at one address. The kernel checks passwords.
type listener struct {
	*net.TCPListener

	mu   sync.Mutex
	keys map[netip.Prefix]string // those that the socket has
}

// listen opens the socket for one family, with the keys of those who may call.
func listen(ctx context.Context, at netip.AddrPort, keys map[netip.Prefix]string) (*listener, error) {
	l := &listener{keys: make(map[netip.Prefix]string)}
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return errors.Join(setHops(conn, at.Addr()), l.set(conn, at.Addr(), keys))
	}}
	config.SetMultipathTCP(false) // it knows no MD5
	config.KeepAlive = -1         // BGP has its own
	socket, err := config.Listen(ctx, network(at.Addr()), at.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.TCPListener = socket.(*net.TCPListener)
	return l, nil
}

// network is the name of a family's TCP in package net.
func network(a netip.Addr) string {
	if a.Is4() {
		return "tcp4"
	}
	return "tcp6"
}

// run hands over connections until the listener is closed.
func (l *listener) run(log *slog.Logger, admit func(*net.TCPConn)) {
	for {
		conn, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // of file descriptors there may be some again soon
			log.Warn("connection not accepted", "at", l.Addr().String(), "error", err)
			time.Sleep(acceptPause)
		default:
			admit(conn)
		}
	}
}

const acceptPause = 100 * time.Millisecond

func (l *listener) close() { _ = l.TCPListener.Close() }

// rekey makes these the keys of connections to come.
func (l *listener) rekey(keys map[netip.Prefix]string) error {
	conn, err := l.SyscallConn()
	if err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	return l.set(conn, at.Addr(), keys)
}

// set gives the socket the keys of its family that it lacks, and takes those away
// that are not wanted.
func (l *listener) set(conn syscall.RawConn, at netip.Addr, keys map[netip.Prefix]string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from := range l.keys {
		if _, wanted := keys[from]; wanted {
			continue
		}
		if err := setKey(conn, from, ""); err != nil {
			return err
		}
		delete(l.keys, from)
	}
	for from, key := range keys {
		if from.Addr().Is4() != at.Is4() || l.keys[from] == key {
			continue
		}
		if err := setKey(conn, from, key); err != nil {
			return err
		}
		l.keys[from] = key
	}
	return nil
}

// keysOf reads the passwords of those who may call.
func keysOf(r *bgp.Reflection) (map[netip.Prefix]string, error) {
	keys := make(map[netip.Prefix]string)
	add := func(from netip.Prefix, password bgp.Secret) error {
		if password == (bgp.Secret{}) {
			return nil
		}
		key, err := password.Read()
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		keys[from] = key
		return nil
	}
	for _, c := range r.Clients {
		if err := add(c.Prefix, c.Password); err != nil {
			return nil, err
		}
	}
	for _, p := range r.Routers {
		if err := add(netip.PrefixFrom(p.Address, p.Address.BitLen()), p.Password); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// dial connects to a router.
func dial(ctx context.Context, p *bgp.Peer) (*net.TCPConn, error) {
	to := netip.PrefixFrom(p.Address, p.Address.BitLen())
	keys, err := keysOf(&bgp.Reflection{Routers: []bgp.Peer{*p}})
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{
		Timeout: callTimeout, KeepAlive: -1,
		Control: func(_, _ string, conn syscall.RawConn) error {
			err := setHops(conn, p.Address)
			if key := keys[to]; key != "" {
				err = errors.Join(err, setKey(conn, to, key))
			}
			return err
		},
	}
	dialer.SetMultipathTCP(false)
	if p.LocalAddress.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.LocalAddress, 0))
	}
	port := p.Port
	if port == 0 {
		port = bgp.Port
	}
	conn, err := dialer.DialContext(ctx, network(p.Address), netip.AddrPortFrom(p.Address, port).String())
	if err != nil {
		return nil, plain(err)
	}
	return conn.(*net.TCPConn), nil
}

// plain leaves out what the net package says of addresses: those are known.
func plain(err error) error {
	if cause, ok := errors.AsType[*net.OpError](err); ok {
		if cause.Timeout() {
			return errors.New("no answer")
		}
		return errors.New(strings.TrimPrefix(cause.Err.Error(), "connect: "))
	}
	return err
}
