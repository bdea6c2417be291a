// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// ethernet8021Q is the EtherType of VLAN tags (IEEE 802.1Q).
const ethernet8021Q = 0x8100

// view is the input of decisions, in addition to the target's route.
type view struct {
	// interfaces are the names of those on which XDP runs.
	interfaces []string
	// filterPods leaves packets for this machine's pods to its network stack.
	filterPods bool
	links      map[int]link
	addresses  []address
	// neighbour returns the state of a neighbour, and an error if the kernel
	// wouldn't resolve it.
	neighbour func(neighbourKey) (neighbour, error)
}

// decide finds how t is reached along rt. Of several paths (ECMP) the first
// usable one is taken, by the order of their gateways: all packets to one
// backend take one path, the same on every node, until the route or a neighbour
// changes.
func (v *view) decide(t Target, rt *route) (Hop, error) {
	if rt.kind == unix.RTN_LOCAL && t.Handover {
		return Hop{Interface: v.links[Loopback].name, Index: Loopback, Handover: true, Local: t.Address, MTU: v.links[Loopback].mtu}, nil
	}
	paths, err := v.paths(t, rt)
	if err != nil {
		return Hop{}, err
	}
	var first error
	for _, p := range paths {
		hop, err := v.along(t, rt, p)
		if err == nil {
			return hop, nil
		}
		if first == nil {
			first = err
		}
	}
	return Hop{}, first
}

// paths returns at least one path that a packet to t may take, or an error.
func (v *view) paths(t Target, rt *route) ([]path, error) {
	err := rt.unusable(t.Address)
	if err == nil {
		return rt.paths, nil
	}
	if rt.kind != unix.RTN_UNSPEC {
		return nil, err
	}
	if !t.MAC.IsZero() {
		l, err := v.only(t)
		return []path{{index: l.index}}, err
	}
	// The kernel removes the routes of an interface that is switched off.
	if down := v.down(); len(down) > 0 {
		return nil, fmt.Errorf("%w (down: %s)", err, strings.Join(down, ", "))
	}
	return nil, err
}

// along finds how t is reached on one path of its route.
func (v *view) along(t Target, rt *route, p path) (Hop, error) {
	hop, dev, err := v.leaving(t, p)
	if err != nil {
		return Hop{}, err
	}
	next := p.next(t)
	if rt.mtu != 0 {
		hop.MTU = min(rt.mtu, dev.mtu)
	}
	if hop.Destination.IsZero() && !hop.Handover {
		if hop.Destination, err = v.resolve(t, dev, next); err != nil {
			return Hop{}, err
		}
	}
	if t.OnLink {
		return hop, nil
	}
	hop.Local = rt.source
	if !hop.Local.IsValid() {
		hop.Local = sourceAddress(v.addresses, dev.index, next, t.Address)
	}
	if !hop.Local.IsValid() {
		return Hop{}, fmt.Errorf("%s has no source address for packets to %s", dev.name, t.Address)
	}
	return hop, nil
}

// leaving is a hop as far as it depends on the path's device alone: the kernel's
// where XDP can't send, if that will do for t.
func (v *view) leaving(t Target, p path) (Hop, link, error) {
	dev, port, err := v.exit(p)
	switch {
	case err == nil:
	case t.Handover && dev.up && !p.down && v.filterPods && !p.gateway.IsValid() && v.hasPods(dev):
		return Hop{Interface: dev.name, Index: Loopback, Handover: true, MTU: dev.mtu}, dev, nil
	case t.Handover && dev.up && !p.down:
		return Hop{Interface: dev.name, Index: dev.index, Handover: true, Source: dev.mac, MTU: dev.mtu}, dev, nil
	default:
		return Hop{}, dev, err
	}
	hop := Hop{Interface: port.name, Index: port.index, Source: dev.mac, Destination: t.MAC, MTU: dev.mtu}
	if dev.index != port.index {
		hop.VLAN = dev.vlan
	}
	return hop, dev, nil
}

// resolve returns the MAC address of the neighbour on dev that t is sent to.
func (v *view) resolve(t Target, dev link, next netip.Addr) (lb.MAC, error) {
	if t.OnLink && next != t.Address {
		return lb.MAC{}, reason{fmt.Errorf("%s is behind gateway %s: l2dsr needs it directly connected", t.Address, next), errIndirect}
	}
	n, refused := v.neighbour(neighbourKey{dev.index, next})
	switch {
	case n.usable():
		return n.mac, nil
	case refused != nil:
		return lb.MAC{}, fmt.Errorf("neighbour %s on %s is unresolved: %w", next, dev.name, refused)
	}
	err := fmt.Errorf("neighbour %s on %s is unresolved", next, dev.name)
	if !n.failed {
		err = reason{err, ErrPending}
	}
	return lb.MAC{}, err
}

// exit returns the device that a path leads through and the interface below it
// on which XDP runs. They differ if the device is a VLAN's.
func (v *view) exit(p path) (dev, port link, err error) {
	dev, ok := v.links[p.index]
	if !ok {
		return dev, port, reason{fmt.Errorf("route leads through interface %d, which was removed", p.index), ErrNoRoute}
	}
	port = dev
	if dev.vlan != 0 && !v.runs(dev) {
		port = v.links[dev.parent]
	}
	switch {
	case !v.runs(port):
		err = reason{fmt.Errorf("route leads through %s, which is not among node.interfaces %v", dev.name, v.interfaces), errIndirect}
	case dev != port && dev.protocol != ethernet8021Q:
		err = reason{fmt.Errorf("route leads through %s, whose tags (0x%04x) are not 802.1Q", dev.name, dev.protocol), errIndirect}
	case !port.up:
		err = fmt.Errorf("interface %s is down", port.name)
	case !dev.up || p.down:
		err = fmt.Errorf("interface %s is down", dev.name)
	case dev.mac.IsZero():
		err = reason{fmt.Errorf("interface %s has no Ethernet address", dev.name), errIndirect}
	}
	return dev, port, err
}

// hasPods reports whether directly connected neighbours on a device are pods of this machine: it
// is a veth, or a bridge of veths. A bridge with other ports may extend to other machines, whose
// answers wouldn't return through this one.
func (v *view) hasPods(dev link) bool {
	if dev.kind != kindBridge {
		return dev.kind == kindVeth
	}
	for _, l := range v.links {
		if l.master == dev.index && (l.kind != kindVeth || v.runs(l)) {
			return false
		}
	}
	return true
}

func (v *view) runs(l link) bool { return slices.Contains(v.interfaces, l.name) }

// only returns the interface for a target that has a MAC address but no route.
func (v *view) only(t Target) (link, error) {
	if len(v.interfaces) != 1 {
		return link{}, fmt.Errorf("no route to %s, and its MAC address may be on any of %v", t.Address, v.interfaces)
	}
	for _, l := range v.links {
		if v.runs(l) {
			return l, nil
		}
	}
	return link{}, fmt.Errorf("no route to %s, and no interface %s", t.Address, v.interfaces[0])
}

// down returns the interfaces that are down or missing.
func (v *view) down() []string {
	up := make(map[string]bool, len(v.interfaces))
	for _, l := range v.links {
		up[l.name] = up[l.name] || l.up
	}
	return slices.DeleteFunc(slices.Clone(v.interfaces), func(name string) bool { return up[name] })
}

// neighbours returns the neighbours that decide would like to be resolved: on all
// paths, so that another path is at hand when one fails.
func (v *view) neighbours(t Target, rt *route) []neighbourKey {
	if !t.MAC.IsZero() || rt.kind != unix.RTN_UNICAST {
		return nil
	}
	var keys []neighbourKey
	for _, p := range rt.paths {
		next := p.next(t)
		dev, _, err := v.exit(p)
		if err != nil || (t.OnLink && next != t.Address) {
			continue
		}
		if key := (neighbourKey{dev.index, next}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
