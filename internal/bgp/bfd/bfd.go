// SPDX-License-Identifier: Apache-2.0

// Package bfd finds within milliseconds that a peer, or the way to it, is dead:
// Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode over UDP,
// for peers on the same link (RFC 5881) and for others (RFC 5883), over IPv4 and
// IPv6, without authentication and without the echo function.
//
// It stands beside BGP in the story of DESIGN.md §1: whoever keeps sessions with
// routers says with Set whom to watch, with Begin that BGP's session is established,
// and hears of every change. From then on sessions are independent of BGP's and may
// outlive them. They share the agent's fate: the C bit is 0. But an agent that is
// back within the detection time goes on with the sessions of the one that died.
//
// A session's rules are in session.go and timing.go, which know neither clocks nor
// sockets; a listener hears all peers of one family and one port.
package bfd

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// Peer is who is watched, and how. Peers are compared by value.
type Peer struct {
	// Address is unicast and has no zone.
	Address netip.Addr
	// Local is the own address, of the same family; the zero Addr leaves it to the
	// kernel.
	Local netip.Addr
	// Multihop says that routers may stand in between. Both ends have to agree, as
	// the ports differ.
	Multihop bool
	bgp.BFD
}

// Event is a change of a session's state.
type Event struct {
	Peer     netip.Addr
	At       time.Time
	Old, New bgp.BFDState
	// Diagnostic is why the session went down.
	Diagnostic Diagnostic
	// RemoteAdminDown says that the peer took the session down on purpose, so that
	// nothing follows about the way to it (RFC 5882 §3.2).
	RemoteAdminDown bool
}

// Status is how a session is doing.
type Status struct {
	State bgp.BFDState
	// Since is when State began.
	Since time.Time
	// Reason is why the session isn't up, in words for an operator; empty if it is.
	Reason string
	// Flaps counts how often the session ceased to be up.
	Flaps uint64
}

// What a packet can say of intervals (microseconds in 32 bits) is far more.
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = time.Minute
)

// check says what makes a session with the peer impossible.
func (p *Peer) check() error {
	local := p.Local.Unmap()
	switch {
	case !p.Address.IsValid() || p.Address.IsUnspecified() || p.Address.IsMulticast() || p.Address.Zone() != "":
		return fmt.Errorf("bfd peer %s: no unicast address", p.Address)
	case p.Local.IsValid() && local.Is4() != p.Address.Unmap().Is4():
		return fmt.Errorf("bfd peer %s: local address %s is of the other family", p.Address, p.Local)
	case p.Interval < shortestInterval || p.Interval > longestInterval:
		return fmt.Errorf("bfd peer %s: interval %s: want %s to %s", p.Address, p.Interval, shortestInterval, longestInterval)
	case p.Multiplier == 0:
		return fmt.Errorf("bfd peer %s: multiplier 0: want 1 to 255", p.Address)
	}
	return nil
}

// index checks peers and sorts them by address, IPv4 in its own form.
func index(peers []Peer) (map[netip.Addr]Peer, error) {
	wanted := make(map[netip.Addr]Peer, len(peers))
	var errs []error
	for _, p := range peers {
		if err := p.check(); err != nil {
			errs = append(errs, err)
			continue
		}
		p.Address, p.Local = p.Address.Unmap(), p.Local.Unmap()
		if _, twice := wanted[p.Address]; twice {
			errs = append(errs, fmt.Errorf("bfd peer %s: given twice", p.Address))
		}
		wanted[p.Address] = p
	}
	return wanted, errors.Join(errs...)
}
