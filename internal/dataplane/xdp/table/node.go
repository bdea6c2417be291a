// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// maxTunnelEnds is the number of tunnel end points of a node.
const maxTunnelEnds = 64

// SetTunnels makes these addresses, and no others, the tunnel end points whose VXLAN and
// Geneve frames are decapsulated if they come from one of the peers. Those that stay are
// never missing.
func (t *Tables) SetTunnels(ends []netip.Addr, peers []netip.Prefix) error {
	if err := SetPrefixes(t.Maps.TunnelPeers, peers); err != nil {
		return fmt.Errorf("tunnel peers: %w", err)
	}
	if len(ends) > maxTunnelEnds {
		return fmt.Errorf("%d tunnel end points are too many: want at most %d", len(ends), maxTunnelEnds)
	}
	wanted := make(map[BalancerAddress]bool, len(ends))
	for _, end := range ends {
		wanted[BalancerAddress{Bytes: end.As16()}] = true
	}
	if err := DeleteOthers(t.Maps.TunnelEnds, func(key BalancerAddress) bool { return wanted[key] }); err != nil {
		return fmt.Errorf("tunnel end points: %w", err)
	}
	for key := range wanted {
		if err := t.Maps.TunnelEnds.Put(key, uint8(1)); err != nil {
			return fmt.Errorf("tunnel end point %s: %w", Unmapped(key.Bytes), err)
		}
	}
	return nil
}

// PrefixKey is the key of a prefix in the program's tables.
func PrefixKey(p netip.Prefix) BalancerPrefixKey {
	bits := p.Bits() + 128 - p.Addr().BitLen()
	return BalancerPrefixKey{PrefixLength: uint32(bits), Address: p.Masked().Addr().As16()}
}

// SetPrefixes makes these prefixes, and no others, the keys of a table. Those that stay are
// never missing.
func SetPrefixes(m *ebpf.Map, prefixes []netip.Prefix) error {
	wanted := make(map[BalancerPrefixKey]bool, len(prefixes))
	for _, prefix := range prefixes {
		wanted[PrefixKey(prefix)] = true
		if err := m.Put(PrefixKey(prefix), uint8(1)); err != nil {
			return fmt.Errorf("prefix %s: %w", prefix, err)
		}
	}
	return DeleteOthers(m, func(key BalancerPrefixKey) bool { return wanted[key] })
}

// natAddresses is NAT_ADDRESSES of bpf/core/types.h: the table's places for a family.
const natAddresses = 64

// SetNATAddresses stores the addresses where programs find them.
func (t *Tables) SetNATAddresses(addresses []netip.Addr) error {
	for first, ipv4 := range map[int]bool{0: true, natAddresses: false} {
		n := 0
		for _, a := range addresses {
			if a.Is4() != ipv4 {
				continue
			}
			if n == natAddresses {
				return fmt.Errorf("table nat_addresses: too many addresses of one family: want at most %d", natAddresses)
			}
			if err := t.Maps.NatAddresses.Put(uint32(first+n), a.As16()); err != nil {
				return fmt.Errorf("table nat_addresses: %w", err)
			}
			n++
		}
	}
	return nil
}
