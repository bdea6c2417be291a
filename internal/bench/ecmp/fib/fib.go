// SPDX-License-Identifier: Apache-2.0

// Package fib follows the routes of a kernel (its forwarding information base)
// through what the kernel tells by netlink, so that no state in between is
// missed and each has a time.
//
// Routers write equal-cost routes in two ways, and both are understood: with
// the next hops inside (BIRD), or with the number of a nexthop object, which may
// be a group of others (FRR; Linux 5.3).
package fib

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Hop is one next hop of a route.
type Hop struct {
	Gateway netip.Addr
	// Weight is its share of the flows, 1 by default.
	Weight int
}

// String writes it as ip-route(8) does.
func (h Hop) String() string { return fmt.Sprintf("via %s weight %d", h.Gateway, h.Weight) }

// Hops are the next hops of a route in the order of their addresses; none means
// that there is no route.
type Hops []Hop

func newHops(hops []Hop) Hops {
	sorted := slices.Clone(hops)
	slices.SortFunc(sorted, func(a, b Hop) int { return a.Gateway.Compare(b.Gateway) })
	return sorted
}

// Equal compares gateways and weights.
func (h Hops) Equal(o Hops) bool { return slices.Equal(h, o) }

// Leads reports whether the gateway is among the next hops.
func (h Hops) Leads(gateway netip.Addr) bool {
	return slices.ContainsFunc(h, func(hop Hop) bool { return hop.Gateway == gateway })
}

// String lists the next hops, or says that there are none.
func (h Hops) String() string {
	if len(h) == 0 {
		return "no route"
	}
	var parts []string
	for _, hop := range h {
		parts = append(parts, hop.String())
	}
	return strings.Join(parts, ", ")
}

// Equally are next hops of equal weight through all the gateways.
func Equally(gateways ...netip.Addr) Hops {
	var hops Hops
	for _, g := range gateways {
		hops = append(hops, Hop{Gateway: g, Weight: 1})
	}
	return newHops(hops)
}

// Event says that from then on the route to a prefix had other next hops.
type Event struct {
	// At is when the kernel's word was received.
	At     time.Time
	Prefix netip.Prefix
	Hops   Hops
}
