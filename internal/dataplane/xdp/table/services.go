// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// States of a place of the VIP table that has no service.
const (
	vipUnused  = uint32(BalancerVipNumberVIP_UNUSED)
	vipDeleted = uint32(BalancerVipNumberVIP_DELETED)
)

// vipSearch is VIP_PLACES of bpf/core/types.h.
const vipSearch = 32

// VIPPlaces is the size of the table for that many services: a power of two,
// and so much larger that long runs of used places don't come about.
func VIPPlaces(services int) int {
	places := 64
	for places < 4*services {
		places *= 2
	}
	return places
}

// vipShift leaves as many of 32 bits as the place in a table of that size has.
func vipShift(places uint32) uint32 { return uint32(32 - bits.TrailingZeros32(places)) }

// spread is the function of this name in bpf/core/hash.h.
func spread(sum uint32) uint32 { return (sum ^ sum>>16) * 0x9e3779b1 }

// vipHome is vip_home of bpf/core/vip.h: the first place where a VIP may be.
func (t *Tables) vipHome(key BalancerVipKey) uint32 {
	words, first := raw(&key), 0
	if netip.AddrFrom16(key.Address).Is4In6() {
		first = 3
	}
	var sum uint64
	for i := first; i < len(t.secrets.VipSecrets); i++ {
		sum += uint64(binary.NativeEndian.Uint32(words[4*i:])) * t.secrets.VipSecrets[i]
	}
	return spread(uint32(sum>>32)) >> vipShift(elements(BalancerMapVips, t.Maps.Vips))
}

// search calls yield with the places where a VIP may be, one after the other,
// until yield returns false. None has been changed since before it was read:
// only the agent writes the table.
func (t *Tables) search(key BalancerVipKey, yield func(place uint32, found BalancerVipPlace) bool) error {
	mask := elements(BalancerMapVips, t.Maps.Vips) - 1
	home := t.vipHome(key)
	for i := range uint32(vipSearch) {
		place := (home + i) & mask
		found, err := read[BalancerVipPlace](t.vips, place)
		if err != nil {
			return err
		}
		if !yield(place, found) {
			return nil
		}
	}
	return nil
}

// PutVIP makes packets find the service of a VIP that is not in the table.
func (t *Tables) PutVIP(key BalancerVipKey, number uint32) error {
	free, ok := uint32(0), false
	err := t.search(key, func(place uint32, found BalancerVipPlace) bool {
		free, ok = place, found.Number == vipUnused || found.Number == vipDeleted
		return !ok
	})
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("vip table: no place among %d", vipSearch)
	}
	// The number makes the place count: it is written last.
	if err := write(t.vips, placeOffset(free), key); err != nil {
		return err
	}
	t.orderStores()
	return t.setNumber(free, number)
}

// DeleteVIP makes packets not find a VIP any more. The place gets another VIP only after a
// grace period; as it has no key until then, it doesn't matter whether the program loads
// the number first or the key.
func (t *Tables) DeleteVIP(key BalancerVipKey) error {
	place, ok := uint32(0), false
	err := t.search(key, func(at uint32, found BalancerVipPlace) bool {
		place, ok = at, found.Number != vipUnused && found.Number != vipDeleted && found.Key == key
		return !ok && found.Number != vipUnused
	})
	if err != nil || !ok {
		return err
	}
	if err := t.setNumber(place, vipDeleted); err != nil {
		return err
	}
	if err := write(t.vips, placeOffset(place), BalancerVipKey{}); err != nil {
		return err
	}
	return t.shorten(place)
}

// shorten ends runs of places that VIPs have left: places that no VIP follows
// needn't be passed over.
func (t *Tables) shorten(place uint32) error {
	mask := elements(BalancerMapVips, t.Maps.Vips) - 1
	for {
		here, err := read[BalancerVipPlace](t.vips, place)
		if err != nil {
			return err
		}
		next, err := read[BalancerVipPlace](t.vips, (place+1)&mask)
		if err != nil || here.Number != vipDeleted || next.Number != vipUnused {
			return err
		}
		if err := t.setNumber(place, vipUnused); err != nil {
			return err
		}
		place = (place - 1) & mask
	}
}

func (t *Tables) setNumber(place, number uint32) error {
	return write(t.vips, placeOffset(place)+unsafe.Offsetof(BalancerVipPlace{}.Number), number)
}

// EachVIP calls yield with every VIP and the number of its service.
func (t *Tables) EachVIP(yield func(key BalancerVipKey, number uint32) error) error {
	for place := range elements(BalancerMapVips, t.Maps.Vips) {
		found, err := read[BalancerVipPlace](t.vips, place)
		if err != nil {
			return err
		}
		if found.Number == vipUnused || found.Number == vipDeleted {
			continue
		}
		if err := yield(found.Key, found.Number); err != nil {
			return err
		}
	}
	return nil
}

func placeOffset(place uint32) uintptr { return uintptr(place) * unsafe.Sizeof(BalancerVipPlace{}) }

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
func write[T shared](m *ebpf.Memory, offset uintptr, v T) error {
	_, err := m.WriteAt(raw(&v), int64(offset))
	return err
}

func read[T shared](m *ebpf.Memory, index uint32) (v T, err error) {
	_, err = m.ReadAt(raw(&v), int64(index)*int64(unsafe.Sizeof(v)))
	return v, err
}

// orderStores makes earlier stores visible to programs no later than the next ones;
// arm64 may exchange plain stores. A store with release semantics and a load of it with
// acquire semantics, as Go's atomic operations are, keep accesses before the one and after
// the other apart (Arm Architecture Reference Manual DDI 0487, B2.3, barrier-ordered-before).
func (t *Tables) orderStores() {
	t.stores.Add(1)
	t.stores.Load()
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

// BeginService clears a service's number for a new service.
func (t *Tables) BeginService(number uint32, key BalancerVipKey) error {
	return errors.Join(
		WriteService(t, number, 0, BalancerService{}),
		WriteServiceDetail(t, number, 0, BalancerServiceDetail{Vip: key}),
		t.Maps.FlowStats.Put(number, make([]BalancerFlowStats, ebpf.MustPossibleCPU())),
	)
}

// WriteView stores a view that is not in use.
func (t *Tables) WriteView(number, view uint32, v BalancerView) error {
	at := unsafe.Offsetof(BalancerService{}.View) + uintptr(view)*unsafe.Sizeof(v)
	return WriteService(t, number, at, v)
}

// WriteSourceList stores the number of the list of sources of a view.
func (t *Tables) WriteSourceList(number, view, list uint32) error {
	at := unsafe.Offsetof(BalancerService{}.Sources) + uintptr(view)*unsafe.Sizeof(list)
	return WriteService(t, number, at, list)
}

// Flip makes a view visible: one aligned store of two bytes, which Go's memmove
// and the processor do at once.
func (t *Tables) Flip(number, view uint32) error {
	t.orderStores()
	return WriteService(t, number, unsafe.Offsetof(BalancerService{}.Active), uint16(view))
}

// WriteClientIdle stores how long clients of a service are remembered; 0 if they
// aren't.
func (t *Tables) WriteClientIdle(number uint32, idle uint64) error {
	return write(t.clientIdle, uintptr(number)*unsafe.Sizeof(idle), idle)
}

// ReadClientIdle is the inverse of WriteClientIdle.
func (t *Tables) ReadClientIdle(number uint32) (uint64, error) {
	return read[uint64](t.clientIdle, number)
}
