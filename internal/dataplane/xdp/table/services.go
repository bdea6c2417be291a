// SPDX-License-Identifier: Apache-2.0

package table

import (
	"net/netip"
	"slices"
	"unsafe"

	"fairlead.io/fairlead/internal/lb"
)

// VIPKey is the key of a VIP in the program's table.
func VIPKey(vip lb.VIP) BalancerVipKey {
	key := BalancerVipKey{
		Address:  vip.Address.As16(),
		Port:     WirePort(vip.Port),
		Protocol: uint8(vip.Protocol),
	}
	if vip.Segment.Tagged() {
		key.SegmentType = uint8(slices.Index(segmentTypes(), vip.Segment.Type))
		key.SegmentId = vip.Segment.ID
	}
	return key
}

// VIPOf is the inverse of vipKey.
func VIPOf(key BalancerVipKey) lb.VIP {
	vip := lb.VIP{
		Address:  Unmapped(key.Address),
		Port:     WirePort(key.Port),
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
		BalancerSegmentTypeSEGMENT_NONE:   lb.SegmentNone,
		BalancerSegmentTypeSEGMENT_VLAN:   lb.SegmentVLAN,
		BalancerSegmentTypeSEGMENT_VXLAN:  lb.SegmentVXLAN,
		BalancerSegmentTypeSEGMENT_GENEVE: lb.SegmentGeneve,
	}
}

// WirePort puts a port into network byte order, as it lies in a packet.
func WirePort(port uint16) uint16 { return port<<8 | port>>8 }

// Unmapped is an address as users write it: IPv4 is mapped into IPv6 in the tables.
func Unmapped(address [16]byte) netip.Addr { return netip.AddrFrom16(address).Unmap() }

// shared are the structures that programs read; they have no hidden padding.
type shared interface {
	BalancerService | BalancerServiceDetail | BalancerView | BalancerVipKey | BalancerVipPlace | BalancerBackend | BalancerBackendDetail | BalancerEgress | BalancerAddress | BalancerTraffic | BalancerQuic | BalancerPeerLookup | uint16 | uint32 | uint64
}

// raw is the memory of a shared structure.
func raw[T shared](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// write and read move one structure to or from a place in mapped memory.
func write[T shared](m memory, offset uintptr, v T) error {
	_, err := m.WriteAt(raw(&v), int64(offset))
	return err
}

func read[T shared](m memory, index uint32) (v T, err error) {
	_, err = m.ReadAt(raw(&v), int64(index)*int64(unsafe.Sizeof(v)))
	return v, err
}

func serviceOffset(number uint32) uintptr {
	return uintptr(number) * unsafe.Sizeof(BalancerService{})
}

// WriteService stores one field of a service, which begins at that offset.
func WriteService[T shared](t *Tables, number uint32, field uintptr, v T) error {
	return write(t.services, serviceOffset(number)+field, v)
}

// ReadService is a service as the programs see it.
func (t *Tables) ReadService(number uint32) (BalancerService, error) {
	return read[BalancerService](t.services, number)
}

// WriteServiceDetail stores one field of a service's detail, which begins at that offset.
func WriteServiceDetail[T shared](t *Tables, number uint32, field uintptr, v T) error {
	return write(t.serviceDetails, uintptr(number)*unsafe.Sizeof(BalancerServiceDetail{})+field, v)
}

// ReadServiceDetail is the rarely needed part of a service.
func ReadServiceDetail(t *Tables, number uint32) (BalancerServiceDetail, error) {
	return read[BalancerServiceDetail](t.serviceDetails, number)
}
