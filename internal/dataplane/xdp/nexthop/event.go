// SPDX-License-Identifier: Apache-2.0

package nexthop

import "net/netip"

// The methods of this file take events. Each marks the entries that the event
// may concern, so that settle decides them again, and no others: thousands of
// routes, neighbours and devices that aren't the backends' come and go on a
// busy node.

// routeChanged takes the coming, change or going of a route.
func (t *table) routeChanged(prefix netip.Prefix, table int) {
	entries := t.index.sort(t.entries)
	for i := t.index.from(prefix.Masked().Addr()); i < len(entries) && prefix.Contains(entries[i].target.Address); i++ {
		e := entries[i]
		// In one table the longest prefix wins: a shorter one changes nothing.
		if table != e.route.table || prefix.Bits() >= e.route.prefix.Bits() {
			t.reroute(e)
		}
	}
}

// rerouteAll takes an event that may concern every route: a routing rule or a
// next-hop object.
func (t *table) rerouteAll() {
	for _, e := range t.entries {
		t.reroute(e)
	}
}

func (t *table) reroute(e *entry) {
	e.rerouted = true
	t.stale[e] = struct{}{}
}

// neighbourChanged takes the coming, change or going (the zero neighbour) of an
// entry of the neighbour tables.
func (t *table) neighbourChanged(key neighbourKey, n neighbour) {
	w, ok := t.neighbours[key]
	if !ok {
		return
	}
	if w.learn(n) {
		t.staleUsers(w)
	}
	if !n.managed {
		t.suspects[w] = struct{}{}
	}
}

// linkChanged takes the coming or change of a device.
func (t *table) linkChanged(l link) {
	before, known := t.view.links[l.index]
	if known && before == l {
		return
	}
	t.index.part(before)
	t.index.join(l)
	t.view.links[l.index] = l
	t.rerouteThrough(before, l)
}

// linkGone takes the going of a device.
func (t *table) linkGone(index int) {
	before := t.view.links[index]
	t.index.part(before)
	delete(t.view.links, index)
	t.rerouteThrough(before, link{index: index})
}

// rerouteThrough marks the entries whose route uses a device, or a VLAN device
// on top of it. Their routes may have changed as well: the kernel drops and
// revives the IPv4 routes and ECMP paths of a device without a word. Where XDP
// runs on the device, entries without a route are concerned too.
func (t *table) rerouteThrough(before, now link) {
	t.rerouteUsers(now.index)
	if !t.view.runs(before) && !t.view.runs(now) {
		return
	}
	for _, e := range t.entries {
		if len(e.route.paths) == 0 {
			t.reroute(e)
		}
	}
}

// rerouteUsers marks the entries whose route uses a device, or a VLAN device on
// top of it.
func (t *table) rerouteUsers(index int) {
	for e := range t.index.byDevice[index] {
		t.reroute(e)
	}
	for _, l := range t.view.links {
		if l.parent != index {
			continue
		}
		for e := range t.index.byDevice[l.index] {
			t.reroute(e)
		}
	}
}

// addressChanged takes the coming, change or going of an address of this machine
// on the interface index. The kernel drops IPv4 routes that prefer an address
// without a word when it goes. Others that use it, of which there are many where
// all pods have one gateway, may have to use another, but keep their routes.
func (t *table) addressChanged(index int, address netip.Addr) {
	t.oldAddresses = true
	t.rerouteUsers(index)
	for _, e := range t.entries {
		local := e.result.Hop.Local
		switch {
		case e.route.source == address:
			t.reroute(e)
		case !e.target.OnLink && (!local.IsValid() || local == address):
			t.stale[e] = struct{}{}
		}
	}
}
