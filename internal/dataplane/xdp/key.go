// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// vipKey is the key of a VIP in the program's table.
func vipKey(vip lb.VIP) balancerVipKey {
	key := balancerVipKey{
		Address:  vip.Address.As16(),
		Port:     wirePort(vip.Port),
		Protocol: uint8(vip.Protocol),
	}
	if vip.Segment.Tagged() {
		key.SegmentType = uint8(slices.Index(segmentTypes(), vip.Segment.Type))
		key.SegmentId = vip.Segment.ID
	}
	return key
}

// vipOf is the inverse of vipKey.
func vipOf(key balancerVipKey) lb.VIP {
	vip := lb.VIP{
		Address:  unmapped(key.Address),
		Port:     wirePort(key.Port),
		Protocol: lb.Protocol(key.Protocol),
	}
	if types := segmentTypes(); key.SegmentType != 0 && int(key.SegmentType) < len(types) {
		vip.Segment = lb.Segment{Type: types[key.SegmentType], ID: key.SegmentId}
	}
	return vip
}

// segmentTypes are the segments' types by the program's numbers for them.
func segmentTypes() []lb.SegmentType {
	return []lb.SegmentType{
		balancerSegmentTypeSEGMENT_NONE:   lb.SegmentNone,
		balancerSegmentTypeSEGMENT_VLAN:   lb.SegmentVLAN,
		balancerSegmentTypeSEGMENT_VXLAN:  lb.SegmentVXLAN,
		balancerSegmentTypeSEGMENT_GENEVE: lb.SegmentGeneve,
	}
}
