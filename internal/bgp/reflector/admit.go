// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp/gobgp"
	"fairlead.io/fairlead/internal/bgp/tcp"
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
	address := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.receive(address, conn); err != nil {
		r.refuse(address, conn, err)
	}
}

// receive takes a connection, or says why not. The caller holds the lock.
func (r *Reflector) receive(address netip.Addr, conn *net.TCPConn) error {
	if router := r.config.Router(address); router != nil {
		if err := tcp.SetHops(conn, r.config.Local, router); err != nil {
			return err
		}
		return r.offer(address, &gobgp.Caller{TCPConn: conn})
	}
	from := r.config.Range(address)
	if from == nil {
		return errNoRange
	}
	if r.greeted >= maxGreeted {
		return errCrowded
	}
	client := from.Peer(address)
	if err := tcp.SetHops(conn, r.config.Local, &client); err != nil {
		return err
	}
	r.greeted++
	r.work.Go(func() { r.greet(address, conn) })
	return nil
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
