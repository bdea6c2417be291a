// SPDX-License-Identifier: Apache-2.0

package lb

import "fmt"

// Bounds of segment identifiers: IEEE 802.1Q keeps 0 and 4095 for itself,
// RFC 7348 and RFC 8926 have 24 bits.
const (
	maxVLAN = 4094
	maxVNI  = 1<<24 - 1
)

func (s Segment) check(f *findings, path string) {
	switch s.Type {
	case SegmentUnset, SegmentNone:
		if s.ID != 0 {
			f.add(path+".id", fmt.Errorf("%d names no segment: want none without type vlan, vxlan or geneve", s.ID))
		}
	case SegmentVLAN:
		s.checkID(f, path, maxVLAN)
	case SegmentVXLAN, SegmentGeneve:
		s.checkID(f, path, maxVNI)
	default:
		f.add(path+".type", segmentWords.check("segment type", uint8(s.Type)))
	}
}

func (s Segment) checkID(f *findings, path string, high uint32) {
	if s.ID < 1 || s.ID > high {
		f.add(path+".id", OutOfRange(s.ID, 1, high))
	}
}
