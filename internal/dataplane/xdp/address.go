// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// addresses is the table of the addresses, each in a segment, that the program answers
// for. Each has the flags of all its VIPs.
type addresses struct {
	table *ebpf.Map
	flags map[table.BalancerAddressKey][]vipFlags
	// vips has the VIPs of each address outside of overlay segments, and changed the
	// addresses that have come or gone: backends there have to be checked.
	vips    map[netip.Addr][]lb.VIP
	changed map[netip.Addr]bool
}

// vipFlags are those that a VIP adds to its address.
type vipFlags struct {
	vip   lb.VIP
	flags table.BalancerAddressFlag
}

func newAddresses(t *table.Tables) *addresses {
	return &addresses{
		table: t.Maps.Addresses, flags: make(map[table.BalancerAddressKey][]vipFlags),
		vips: make(map[netip.Addr][]lb.VIP), changed: make(map[netip.Addr]bool),
	}
}

// among returns the usable backends of a plan whose packets would go to a VIP.
func (a *addresses) among(pl *plan) map[lb.BackendID]lb.VIP {
	found := make(map[lb.BackendID]lb.VIP)
	for i, b := range pl.backends {
		if vips := a.vips[farEnd(b)]; len(vips) > 0 && pl.hops[i].Err == nil {
			found[b.ID()] = vips[0]
		}
	}
	return found
}

// farEnd is where packets for a backend are sent to.
func farEnd(b lb.Backend) netip.Addr {
	if b.TunnelEnd.IsValid() {
		return b.TunnelEnd
	}
	return b.Address
}

// recheck queues the services with backends at addresses that have become VIPs, or no
// longer are.
func (c *catalog) recheck(a *addresses, queue func(lb.VIP)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(a.changed) == 0 {
		return
	}
	for vip, s := range c.services {
		for i := range s.now.slots {
			if one := &s.now.slots[i]; one.taken() && !one.adopted() && a.changed[farEnd(*one.backend)] {
				queue(vip)
				break
			}
		}
	}
	clear(a.changed)
}

// show gives a VIP these flags. It is idempotent.
func (a *addresses) show(vip lb.VIP, flags table.BalancerAddressFlag) error {
	at := addressKey(vip)
	vips := a.flags[at]
	if i := slices.IndexFunc(vips, func(f vipFlags) bool { return f.vip == vip }); i >= 0 {
		vips[i].flags = flags
	} else {
		a.flags[at] = append(vips, vipFlags{vip, flags})
	}
	if same := a.vips[vip.Address]; !vip.Segment.Overlay() && !slices.Contains(same, vip) {
		if a.vips[vip.Address] = append(same, vip); len(same) == 0 {
			a.changed[vip.Address] = true
		}
	}
	return a.write(at)
}

// remove takes out a VIP.
func (a *addresses) remove(vip lb.VIP) error {
	at := addressKey(vip)
	a.flags[at] = slices.DeleteFunc(a.flags[at], func(f vipFlags) bool { return f.vip == vip })
	if same := a.vips[vip.Address]; slices.Contains(same, vip) {
		if same[0] == vip {
			a.changed[vip.Address] = true
		}
		if a.vips[vip.Address] = slices.DeleteFunc(same, func(v lb.VIP) bool { return v == vip }); len(same) == 1 {
			delete(a.vips, vip.Address)
		}
	}
	return a.write(at)
}

func (a *addresses) write(at table.BalancerAddressKey) error {
	var err error
	if vips := a.flags[at]; len(vips) == 0 {
		delete(a.flags, at)
		err = table.Delete(a.table, at)
	} else {
		var all table.BalancerAddressFlag
		for _, f := range vips {
			all |= f.flags
		}
		err = a.table.Put(at, uint32(all))
	}
	if err != nil {
		return fmt.Errorf("address table: %s: %w", table.Unmapped(at.Address), err)
	}
	return nil
}

// disown deletes the addresses that an earlier agent left without a service.
func (a *addresses) disown() error {
	err := table.DeleteOthers(a.table, func(key table.BalancerAddressKey) bool { return a.flags[key] != nil })
	if err != nil {
		return fmt.Errorf("address table: %w", err)
	}
	return nil
}

// Discard implements dataplane.Discarder.
func (p *Plane) Discard(prefixes []netip.Prefix) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := table.SetPrefixes(p.tables.Maps.Aggregates, prefixes); err != nil {
		return fmt.Errorf("aggregates: %w", err)
	}
	return nil
}

// addressFlags returns the flags that the service adds to its address.
func (s *service) addressFlags() table.BalancerAddressFlag {
	return when(!s.now.has(table.BalancerViewFlagVIEW_EMPTY), table.BalancerAddressFlagADDRESS_USABLE) |
		when(s.now.has(table.BalancerViewFlagVIEW_REJECT), table.BalancerAddressFlagADDRESS_REJECT) |
		when(s.now.has(table.BalancerViewFlagVIEW_TUNNEL_END), table.BalancerAddressFlagADDRESS_TUNNELLED)
}

// addressKey is the address of a VIP in the program's table: the destination of packets
// without ports.
func addressKey(vip lb.VIP) table.BalancerAddressKey {
	key := table.VIPKey(vip)
	return table.BalancerAddressKey{Address: key.Address, SegmentId: key.SegmentId, SegmentType: key.SegmentType}
}
