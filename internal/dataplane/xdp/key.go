// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fairlead.io/fairlead/internal/lb"
)

// vipKey is the key of a VIP in the program's table.
func vipKey(vip lb.VIP) balancerVipKey {
	key := balancerVipKey{
		Address:  vip.Address.As16(),
		Port:     wirePort(vip.Port),
		Protocol: uint8(vip.Protocol),
	}
	if vip.Segment.Type == lb.SegmentVLAN {
		key.SegmentType = uint8(balancerSegmentTypeSEGMENT_VLAN)
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
	if key.SegmentType == uint8(balancerSegmentTypeSEGMENT_VLAN) {
		vip.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: key.SegmentId}
	}
	return vip
}
