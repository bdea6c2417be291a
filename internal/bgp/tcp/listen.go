// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listener takes connections at one address. The kernel checks passwords.
type Listener struct {
	tcp *net.TCPListener
	raw syscall.RawConn
	at  netip.Addr

	mu   sync.Mutex
	keys Keys // those that the socket has
}

// Listen opens a listener. It answers with the highest hop limit: peers with TTL
// security take no other, already before it is known who calls.
func Listen(ctx context.Context, at netip.AddrPort, keys Keys) (*Listener, error) {
	l := &Listener{at: at.Addr(), keys: Keys{}}
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		o := optionsOf(l.at)
		err := control(raw, func(fd int) error { return unix.SetsockoptInt(fd, o.level, o.hops, maxHops) })
		return errors.Join(err, l.set(raw, keys))
	}}
	config.SetMultipathTCP(false) // it takes no signatures
	network := "tcp4"
	if l.at.Is6() {
		network = "tcp6"
	}
	socket, err := config.Listen(ctx, network, at.String())
	if err != nil {
		return nil, fmt.Errorf("bgp: %w", err)
	}
	l.tcp = socket.(*net.TCPListener)
	if l.raw, err = l.tcp.SyscallConn(); err != nil {
		l.Close()
		return nil, fmt.Errorf("bgp: %w", err)
	}
	return l, nil
}

// pause is how long a listener waits after it couldn't accept a connection.
const pause = 100 * time.Millisecond

// Run hands connections over until the listener is closed.
func (l *Listener) Run(log *slog.Logger, admit func(*net.TCPConn)) {
	for {
		conn, err := l.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // of file descriptors there may be some again soon
			log.Warn("connection not accepted", "at", l.tcp.Addr(), "error", err)
			time.Sleep(pause)
		default:
			admit(conn)
		}
	}
}

// Close ends Run; connections live on.
func (l *Listener) Close() { l.tcp.Close() }

// Rekey makes keys those of connections to come.
func (l *Listener) Rekey(keys Keys) error { return l.set(l.raw, keys) }

// set gives the socket the keys of its family that it lacks, and takes those away
// that are not wanted.
func (l *Listener) set(raw syscall.RawConn, keys Keys) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from := range l.keys {
		if _, wanted := keys[from]; wanted {
			continue
		}
		if err := setKey(raw, from, ""); err != nil {
			return err
		}
		delete(l.keys, from)
	}
	for from, key := range keys {
		if from.Addr().Is4() != l.at.Is4() || l.keys[from] == key {
			continue
		}
		if err := setKey(raw, from, key); err != nil {
			return err
		}
		l.keys[from] = key
	}
	return nil
}
