// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

var errNoRange = errors.New("the address is in no range of clients")

// Bounds of connections whose OPEN hasn't arrived, in all and of one source. Peers send it
// with their first packet, so a connection that exceeds a bound replaces the oldest one.
const (
	maxUnidentified = 1024
	maxOfSource     = 64
)

// unidentified are the connections whose OPEN hasn't arrived, oldest first.
type unidentified []session.Conn

// add adds a connection, and closes one if there are too many: the oldest one, which is the
// least likely to send its OPEN.
func (u *unidentified) add(conn session.Conn) {
	var same []session.Conn
	for _, c := range *u {
		if source(c) == source(conn) {
			same = append(same, c)
		}
	}
	var surplus session.Conn
	switch {
	case len(same) >= maxOfSource:
		surplus = same[0]
	case len(*u) >= maxUnidentified:
		surplus = (*u)[0]
	}
	if surplus != nil {
		_ = surplus.Close()
		u.remove(surplus)
	}
	*u = append(*u, conn)
}

// remove removes a connection, if it is one of them.
func (u *unidentified) remove(conn session.Conn) {
	*u = slices.DeleteFunc(*u, func(c session.Conn) bool { return c == conn })
}

// source returns the prefix that the connections of one host share: its IPv4 address, or
// its IPv6 /64, in which a host may choose its addresses.
func source(conn session.Conn) netip.Prefix {
	address := remote(conn)
	p, _ := address.Prefix(min(address.BitLen(), 64)) // never longer than the address
	return p
}

// keysOf reads the passwords of all that may connect.
func keysOf(r *bgp.Reflection) (session.Keys, error) {
	keys := session.Keys{}
	for _, c := range r.Clients {
		if err := keys.Add(c.Prefix, c.Password); err != nil {
			return nil, fmt.Errorf("range %s: %w", c.Prefix, err)
		}
	}
	for _, p := range r.Routers {
		if err := keys.Add(session.HostPrefix(p.Address), p.Password); err != nil {
			return nil, fmt.Errorf("router %s: %w", p.Address, err)
		}
	}
	return keys, nil
}

// accept takes a connection of a router or a client, and closes others.
func (r *Reflector) accept(conn session.Conn) {
	address := remote(conn)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(address, conn); err != nil {
		r.refuse(address, conn, err)
	}
}

func remote(conn session.Conn) netip.Addr { return conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() }

func (r *Reflector) admit(address netip.Addr, conn session.Conn) error {
	if router := r.routers[address]; router != nil {
		if !router.Peer.Passive {
			return fmt.Errorf("router %s is not passive", address)
		}
		router.Accept(conn)
		return nil
	}
	from := r.config.Range(address)
	if from == nil {
		return errNoRange
	}
	client := from.Client(address)
	if err := session.SetTTL(conn, r.config.Local, &client); err != nil {
		return err
	}
	r.unidentified.add(conn)
	r.work.Go(func() { r.identify(address, conn) })
	return nil
}

// identify waits for the OPEN of a client.
func (r *Reflector) identify(address netip.Addr, conn session.Conn) {
	stop := context.AfterFunc(r.ctx, func() { _ = conn.Close() })
	pending, err := session.ReadOpen(conn)
	if err == nil {
		if former := r.contested(address, pending); former != nil && !former.SupersededBy(pending) {
			pending.Refuse(session.Collision)
			err = errors.New("the client has a session")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unidentified.remove(conn)
	if !stop() {
		return // the reflector is closed
	}
	if errors.Is(err, net.ErrClosed) {
		err = errors.New("too many connections without an OPEN") // unidentified.add closed it
	}
	if err == nil {
		err = r.offer(address, pending)
	}
	if err != nil {
		r.refuse(address, conn, err)
	}
}

// refuse closes a connection. The caller holds the lock.
func (r *Reflector) refuse(address netip.Addr, conn session.Conn, err error) {
	r.refused++
	_ = conn.Close()
	if r.logLimit.Allow() {
		r.log.Warn("connection refused", "address", address, "error", err)
	}
}
