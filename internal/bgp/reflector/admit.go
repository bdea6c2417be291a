// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp/gobgp"
)

var (
	errNoRange = errors.New("address is in no range of clients")
	errCrowded = errors.New("too many callers don't say who they are")
)

// Callers who haven't said who they are: how many there may be, and how long they
// may take. Peers send their OPEN with the first packet that they can.
const (
	maxGreeted = 1024
	patience   = 10 * time.Second
)

// admit takes a connection from whoever calls. Those of strangers are closed;
// clients say who they are first, as many may have one address.
func (r *Reflector) admit(conn *net.TCPConn) {
	address, err := remote(conn)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
	case r.config.Router(address) != nil:
		err = r.offer(address, &gobgp.Caller{TCPConn: conn})
	case r.config.Range(address) == nil:
		err = errNoRange
	case r.greeted >= maxGreeted:
		err = errCrowded
	default:
		r.greeted++
		r.work.Go(func() { r.greet(address, conn) })
	}
	if err != nil {
		r.refuse(address, conn, err)
	}
}

// greet waits until a caller has said who it is.
func (r *Reflector) greet(address netip.Addr, conn *net.TCPConn) {
	stay := context.AfterFunc(r.ctx, func() { _ = conn.Close() })
	caller, err := gobgp.Greet(conn, patience)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.greeted--
	if !stay() {
		return // the reflector has ended
	}
	if err == nil {
		err = r.offer(address, caller)
	}
	if err != nil {
		r.refuse(address, conn, err)
	}
}

// refuse closes a stranger's connection. The caller holds the lock.
func (r *Reflector) refuse(address netip.Addr, conn *net.TCPConn, err error) {
	r.refused++
	_ = conn.Close()
	if r.quota.take(time.Now()) {
		r.log.Warn("connection refused", "from", address, "error", err)
	}
}

// remote is the address from which somebody calls.
func remote(conn *net.TCPConn) (netip.Addr, error) {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return at.Addr(), err
}
