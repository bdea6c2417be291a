// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// place is an address in a segment: the destination of packets without ports.
type place struct {
	address netip.Addr
	segment lb.Segment
}

func placeOf(vip lb.VIP) place { return place{vip.Address, vip.Segment} }

// addresses is the table of the addresses that the program answers for. Each has
// the flags of all its VIPs.
type addresses struct {
	table *ebpf.Map
	flags map[place]map[lb.VIP]table.BalancerAddressFlag
}

func newAddresses(t *table.Tables) *addresses {
	return &addresses{t.Maps.Addresses, make(map[place]map[lb.VIP]table.BalancerAddressFlag)}
}

// show gives a VIP these flags. It is idempotent.
func (a *addresses) show(vip lb.VIP, flags table.BalancerAddressFlag) error {
	at := placeOf(vip)
	if a.flags[at] == nil {
		a.flags[at] = make(map[lb.VIP]table.BalancerAddressFlag)
	}
	a.flags[at][vip] = flags
	return a.write(at)
}

// remove takes out a VIP.
func (a *addresses) remove(vip lb.VIP) error {
	at := placeOf(vip)
	delete(a.flags[at], vip)
	return a.write(at)
}

func (a *addresses) write(at place) error {
	var err error
	if vips := a.flags[at]; len(vips) == 0 {
		delete(a.flags, at)
		err = table.Delete(a.table, addressKey(at))
	} else {
		var all table.BalancerAddressFlag
		for _, flags := range vips {
			all |= flags
		}
		err = a.table.Put(addressKey(at), uint32(all))
	}
	if err != nil {
		return fmt.Errorf("address table: %s: %w", at.address, err)
	}
	return nil
}

// disown deletes the addresses that an earlier agent left without a service.
func (a *addresses) disown() error {
	err := table.DeleteOthers(a.table, func(key table.BalancerAddressKey) bool { return a.flags[placeOfKey(key)] != nil })
	if err != nil {
		return fmt.Errorf("address table: %w", err)
	}
	return nil
}

// addressFlags is what the service adds to those of its address.
func (s *service) addressFlags() table.BalancerAddressFlag {
	return when(!s.now.has(table.BalancerViewFlagVIEW_EMPTY), table.BalancerAddressFlagADDRESS_USABLE) |
		when(s.now.has(table.BalancerViewFlagVIEW_REJECT), table.BalancerAddressFlagADDRESS_REJECT) |
		when(s.now.has(table.BalancerViewFlagVIEW_TUNNEL_END), table.BalancerAddressFlagADDRESS_TUNNELLED)
}

// addressKey is a place's key in the program's table.
func addressKey(at place) table.BalancerAddressKey {
	key := table.VIPKey(lb.VIP{Address: at.address, Segment: at.segment})
	return table.BalancerAddressKey{Address: key.Address, SegmentId: key.SegmentId, SegmentType: key.SegmentType}
}

// placeOfKey is the inverse of addressKey.
func placeOfKey(key table.BalancerAddressKey) place {
	return placeOf(table.VIPOf(table.BalancerVipKey{Address: key.Address, SegmentId: key.SegmentId, SegmentType: key.SegmentType}))
}
