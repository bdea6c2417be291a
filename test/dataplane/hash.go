// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"encoding/binary"
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// FlowHash is bpf/core/hash.h's flow_hash, written a second time.
func FlowHash(seed uint64, vip lb.VIP, client netip.AddrPort, affinity lb.Affinity) uint64 {
	word := func(h, w uint64) uint64 {
		h = (h ^ w) * 0x9e3779b97f4a7c15
		return h ^ h>>32
	}
	address := func(h uint64, a netip.Addr) uint64 {
		b := a.As16()
		if a.Is6() {
			h = word(h, binary.NativeEndian.Uint64(b[:8]))
		}
		return word(h, binary.NativeEndian.Uint64(b[8:]))
	}
	var segment uint64
	if vip.Segment.Tagged() {
		number := map[lb.SegmentType]uint64{lb.SegmentVLAN: 1, lb.SegmentVXLAN: 2, lb.SegmentGeneve: 3}[vip.Segment.Type]
		segment = number | uint64(vip.Segment.ID)<<8
	}
	h := address(0, vip.Address)
	h = word(h, uint64(wirePort(vip.Port))|uint64(vip.Protocol)<<16|segment<<24)
	h ^= seed
	port := uint64(wirePort(client.Port()))
	if affinity == lb.AffinityClient {
		port = 0
	}
	if a := client.Addr().As16(); client.Addr().Is4() {
		h = word(h, binary.NativeEndian.Uint64(a[8:])|port)
	} else {
		h = address(h, client.Addr()) ^ port
	}
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// wirePort is a port as it is in a packet, read as a number.
func wirePort(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}
