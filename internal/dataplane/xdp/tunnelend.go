// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// setTunnelEnds makes these addresses, and no others, the tunnel end points
// whose VXLAN and Geneve frames are opened. Those that stay are never missing.
func (t *tables) setTunnelEnds(ends []netip.Addr) error {
	if len(ends) > maxTunnelEnds {
		return fmt.Errorf("%d tunnel end points are too many: want at most %d", len(ends), maxTunnelEnds)
	}
	wanted := make(map[balancerAddress]bool, len(ends))
	for _, end := range ends {
		wanted[balancerAddress{Bytes: end.As16()}] = true
	}
	var old []balancerAddress
	var key balancerAddress
	var value uint8
	it := t.maps.TunnelEnds.Iterate()
	for it.Next(&key, &value) {
		if !wanted[key] {
			old = append(old, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("tunnel end points: %w", err)
	}
	for _, key := range old {
		if err := t.maps.TunnelEnds.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("tunnel end point %s: %w", unmapped(key.Bytes), err)
		}
	}
	for key := range wanted {
		if err := t.maps.TunnelEnds.Put(key, uint8(1)); err != nil {
			return fmt.Errorf("tunnel end point %s: %w", unmapped(key.Bytes), err)
		}
	}
	return nil
}
