// SPDX-License-Identifier: Apache-2.0

// Package nexthop follows how backends are reached: the interface of the route, the MAC
// address of the next hop, the VLAN of the interface and the source address of a
// tunnel. The XDP data plane calls it for the backends of a service on every Update,
// and reports services whose next hops changed as stale, so that reconcile updates
// them.
//
// decide.go and table.go are pure: they turn routes, links and neighbours into a Hop,
// and find the targets that an event concerns. kernel.go and event.go
// read rtnetlink(7).
package nexthop

import (
	"errors"
	"net/netip"
	"strconv"

	"fairlead.io/fairlead/internal/lb"
)

// Target is a destination to resolve.
type Target struct {
	// Address is the backend's address; never IPv4-mapped, without zone.
	Address netip.Addr
	// OnLink requires the machine that has Address itself, as l2dsr and relays do: a
	// route through a gateway is an error. Otherwise Address is the far end of a
	// tunnel.
	OnLink bool
	// MAC overrides the neighbour table. The interface is still the
	// route's or, if there is no route, the only configured one.
	MAC lb.MAC
	// Handover allows a device to which XDP can't send, such as a
	// tunnel's, and this machine itself: packets are handed over to the kernel there.
	Handover bool
	// Relay is the machine that gets packets for Address as they came, if it is
	// directly connected by an interface on which XDP runs: then Relay is resolved.
	// Else, and if it is nil, Address is.
	Relay *netip.Addr
}

// Hop is all that is needed to write the Ethernet header, and the addresses of
// an outer IP header, of packets to a target. It is comparable.
type Hop struct {
	// Interface and Index name the interface on which XDP runs or, with Handover,
	// any device.
	Interface string
	Index     int
	// Handover means that XDP can't send there: the kernel has to, which needs no
	// MAC addresses from here. Source is the device's all the same, as it may be the
	// only thing that distinguishes it from a removed one.
	Handover bool
	// Relay is set if this is the hop to the target's Relay.
	Relay bool
	// Source is the MAC address of this machine, Destination the next hop's.
	Source, Destination lb.MAC
	// VLAN is the 802.1Q id to be written if the route leads through a VLAN
	// device on top of Interface, else 0.
	VLAN uint16
	// Local is the source address of a tunnel to the target: the route's
	// preferred one (RTA_PREFSRC), else one that suits the interface. It is
	// invalid for an OnLink target, which needs none.
	Local netip.Addr
	// MTU is the size of the largest IP packet in bytes: the device's, or the
	// route's if that is smaller.
	MTU int
}

// Loopback is the index of every network namespace's first interface.
const Loopback = 1

// ToStack reports whether packets continue in this machine's network stack: to its own
// sockets, or through netfilter to its pods.
func (h Hop) ToStack() bool { return h.Handover && h.Index == Loopback }

// Port is a device that is a part of another.
type Port struct {
	Index int
	MAC   lb.MAC
}

// String returns for example "eth0 02:00:00:00:00:01 vlan 100", or "flannel.1 by
// the kernel".
func (h Hop) String() string {
	if h.ToStack() {
		return "this machine's network stack"
	}
	if h.Handover {
		return h.Interface + " by the kernel"
	}
	s := h.Interface + " " + h.Destination.String()
	if h.VLAN != 0 {
		s += " vlan " + strconv.Itoa(int(h.VLAN))
	}
	return s
}

// Result is a Hop, or the reason why there is none now, in words for people.
type Result struct {
	Hop Hop
	Err error
}

// ErrPending is in the chain of a Result's error as long as the kernel is still
// asking for a neighbour, and it has not failed to answer before.
var ErrPending = errors.New("no answer yet")

// ErrLocal is in the chain of a Result's error if the target is an address of this machine.
var ErrLocal = errors.New("local address")

// ErrNoRoute is in the chain of a Result's error if no route leads to the target, or only one that
// rejects packets, or leads through an interface that was removed.
var ErrNoRoute = errors.New("no route")

// errIndirect is in the chain of a Result's error if a target that has to be
// OnLink isn't, and may well be reached otherwise.
var errIndirect = errors.New("not directly connected")

// reason is an error of one of these kinds, whose text doesn't show the kind.
type reason struct {
	error
	kind error
}

func (r reason) Is(target error) bool { return target == r.kind }

// equal reports whether two results mean the same to those who use them.
func (r Result) equal(o Result) bool {
	if r.Err == nil || o.Err == nil {
		return r.Err == nil && o.Err == nil && r.Hop == o.Hop
	}
	return r.Err.Error() == o.Err.Error() && errors.Is(r.Err, ErrPending) == errors.Is(o.Err, ErrPending)
}
