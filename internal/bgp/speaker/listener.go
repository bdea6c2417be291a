// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

// passiveListener accepts the connections of passive peers. It listens only in
// families that have such peers.
type passiveListener struct {
	*session.Listener
	log *slog.Logger

	mu    sync.Mutex
	peers map[netip.Addr]*peer
}

func newPassiveListener(log *slog.Logger) *passiveListener {
	l := &passiveListener{log: log}
	l.Listener = session.NewListener(log, l.keys, l.accept)
	return l
}

// set makes the passive ones among peers all that may connect.
func (l *passiveListener) set(ctx context.Context, peers map[netip.Addr]*peer) error {
	passive := make(map[netip.Addr]*peer)
	var at []netip.AddrPort
	for addr, p := range peers {
		if p.Peer.Passive {
			passive[addr] = p
			if all := netip.AddrPortFrom(wildcard(addr), bgp.Port); !slices.Contains(at, all) {
				at = append(at, all)
			}
		}
	}
	l.mu.Lock()
	l.peers = passive
	l.mu.Unlock()
	return l.Set(ctx, at...)
}

// wildcard is the unspecified address of addr's family.
func wildcard(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// keys reads the passwords of the peers. A peer whose password can't be read gets a
// random one, so that it can't connect without any.
func (l *passiveListener) keys() (session.Keys, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := session.Keys{}
	var errs []error
	for addr, p := range l.peers {
		if err := keys.Add(session.HostPrefix(addr), p.Peer.Password); err != nil {
			errs = append(errs, fmt.Errorf("peer %s: %w", addr, err))
			keys[session.HostPrefix(addr)] = rand.Text()
			p.passwordFailed(err)
		}
	}
	return keys, errors.Join(errs...)
}

// accept hands a connection to its peer.
func (l *passiveListener) accept(conn *net.TCPConn) {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	l.mu.Lock()
	p := l.peers[from]
	l.mu.Unlock()
	if p == nil {
		l.log.Debug("connection refused: no passive peer has this address", "address", from)
		conn.Close()
		return
	}
	p.Accept(conn)
}
