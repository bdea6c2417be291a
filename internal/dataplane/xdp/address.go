// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// addresses is the table of the addresses, each in a segment, that the program answers
// for. Each has the flags of all its VIPs.
type addresses struct {
	table *ebpf.Map
	flags map[table.BalancerAddressKey]map[lb.VIP]table.BalancerAddressFlag
}

func newAddresses(t *table.Tables) *addresses {
	return &addresses{t.Maps.Addresses, make(map[table.BalancerAddressKey]map[lb.VIP]table.BalancerAddressFlag)}
}

// show gives a VIP these flags. It is idempotent.
func (a *addresses) show(vip lb.VIP, flags table.BalancerAddressFlag) error {
	at := addressKey(vip)
	if a.flags[at] == nil {
		a.flags[at] = make(map[lb.VIP]table.BalancerAddressFlag)
	}
	a.flags[at][vip] = flags
	return a.write(at)
}

// remove takes out a VIP.
func (a *addresses) remove(vip lb.VIP) error {
	at := addressKey(vip)
	delete(a.flags[at], vip)
	return a.write(at)
}

func (a *addresses) write(at table.BalancerAddressKey) error {
	var err error
	if vips := a.flags[at]; len(vips) == 0 {
		delete(a.flags, at)
		err = table.Delete(a.table, at)
	} else {
		var all table.BalancerAddressFlag
		for _, flags := range vips {
			all |= flags
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
	wanted := make(map[table.BalancerPrefixKey]bool)
	for _, prefix := range prefixes {
		bits := prefix.Bits() + 128 - prefix.Addr().BitLen()
		key := table.BalancerPrefixKey{PrefixLength: uint32(bits), Address: prefix.Addr().As16()}
		wanted[key] = true
		if err := p.tables.Maps.Aggregates.Put(key, uint8(1)); err != nil {
			return fmt.Errorf("aggregate %s: %w", prefix, err)
		}
	}
	err := table.DeleteOthers(p.tables.Maps.Aggregates, func(key table.BalancerPrefixKey) bool { return wanted[key] })
	if err != nil {
		return fmt.Errorf("aggregates: %w", err)
	}
	return nil
}

// addressFlags is what the service adds to those of its address.
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
