// SPDX-License-Identifier: Apache-2.0

// Package nexthop follows how backends are reached.
//
// The XDP data plane writes Ethernet headers itself, so it has to know what the
// kernel knows: which interface a route leads through, which MAC address the
// next hop has, which VLAN the interface adds, which source address a tunnel
// has. In the story of DESIGN.md §1 the package stands beside the data plane:
// dataplane/xdp asks it for the hops of a service's backends on every Update,
// and passes on the services whose hops have changed as stale, so that
// reconcile updates them.
//
// The package has a pure core and a thin edge. decide.go turns a route, the
// links and the neighbours into a Hop; table.go knows which followed targets an
// event concerns. The edge is rtnetlink(7): kernel.go asks, subscription.go and
// decode.go listen.
package nexthop

import (
	"errors"
	"net/netip"
	"strconv"

	"fairlead.io/fairlead/internal/lb"
)

// Target is what has to be reached.
type Target struct {
	// Address is the backend's address; never IPv4-mapped, without zone.
	Address netip.Addr
	// OnLink asks for the machine that has Address itself, as l2dsr and relays do: a
	// route through a gateway is an error. Otherwise Address is the far end of a
	// tunnel.
	OnLink bool
	// MAC overrides what the neighbour table says. The interface is still the
	// route's or, if there is no route, the only configured one.
	MAC lb.MAC
	// Handover says that a device to which XDP can't send will do, such as a
	// tunnel's: packets are handed over to the kernel there.
	Handover bool
	// Relay is the machine that gets packets for Address as they came, if it is
	// directly connected by an interface on which XDP runs: then it is what is
	// reached. Else, and if it is invalid, Address is.
	Relay netip.Addr
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
	// only thing that tells it from one that is gone.
	Handover bool
	// Source is the MAC address of this machine, Destination that of the next
	// hop.
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
	// Relay says that this is the way to the target's Relay.
	Relay bool
}

// Port is a device that is a part of another.
type Port struct {
	Index int
	MAC   lb.MAC
}

// String returns for example "eth0 02:00:00:00:00:01 vlan 100", or "flannel.1 by
// the kernel".
func (h Hop) String() string {
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

// pending is a reason that an answer may end. Its text is the reason's alone.
type pending struct{ error }

// Is reports whether target is ErrPending.
func (pending) Is(target error) bool { return target == ErrPending }

// errIndirect is in the chain of a Result's error if a target that has to be
// OnLink isn't, and may well be reached otherwise.
var errIndirect = errors.New("not directly connected")

// indirect is a reason that is nothing to those who needn't be on the link. Its
// text is the reason's alone.
type indirect struct{ error }

// Is reports whether target is errIndirect.
func (indirect) Is(target error) bool { return target == errIndirect }

// equal reports whether two results mean the same to those who use them.
func (r Result) equal(o Result) bool {
	if r.Err == nil || o.Err == nil {
		return r.Err == nil && o.Err == nil && r.Hop == o.Hop
	}
	return r.Err.Error() == o.Err.Error() && errors.Is(r.Err, ErrPending) == errors.Is(o.Err, ErrPending)
}
