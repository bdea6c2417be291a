// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
)

// States of a place of the VIP table that has no service.
const (
	vipUnused  = uint32(BalancerVipNumberVIP_UNUSED)
	vipDeleted = uint32(BalancerVipNumberVIP_DELETED)
)

// vipSearch is VIP_PLACES of bpf/core/types.h.
const vipSearch = 32

// VIPs is the table in which packets find the numbers of services.
type VIPs struct {
	places  memory
	size    uint32
	secrets [6]uint64     // vip_secrets of bpf/core/config.h
	stores  atomic.Uint32 // of orderStores
}

// newVIPs maps a table into this process.
func newVIPs(m *ebpf.Map, secrets BalancerSecrets) (*VIPs, error) {
	places, err := m.Memory()
	return &VIPs{places: places, size: elements(BalancerMapVips, m), secrets: secrets.VipSecrets}, err
}

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

// home is vip_home of bpf/core/vip.h: the first place where a VIP may be.
func (t *VIPs) home(key BalancerVipKey) uint32 {
	words, first := raw(&key), 0
	if netip.AddrFrom16(key.Address).Is4In6() {
		first = 3
	}
	var sum uint64
	for i := first; i < len(t.secrets); i++ {
		sum += uint64(binary.NativeEndian.Uint32(words[4*i:])) * t.secrets[i]
	}
	return spread(uint32(sum>>32)) >> vipShift(t.size)
}

// search calls yield with the places where a VIP may be, one after the other,
// until yield returns false. None has been changed since before it was read:
// only the agent writes the table.
func (t *VIPs) search(key BalancerVipKey, yield func(place uint32, found BalancerVipPlace) bool) error {
	mask := t.size - 1
	home := t.home(key)
	for i := range uint32(vipSearch) {
		place := (home + i) & mask
		found, err := read[BalancerVipPlace](t.places, place)
		if err != nil {
			return err
		}
		if !yield(place, found) {
			return nil
		}
	}
	return nil
}

// Put makes packets find the service of a VIP that is not in the table.
func (t *VIPs) Put(key BalancerVipKey, number uint32) error {
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
	if err := write(t.places, placeOffset(free), key); err != nil {
		return err
	}
	t.orderStores()
	return t.setNumber(free, number)
}

// Delete makes packets not find a VIP any more. The place gets another VIP only after a
// grace period; as it has no key until then, it doesn't matter whether the program loads
// the number first or the key.
func (t *VIPs) Delete(key BalancerVipKey) error {
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
	if err := write(t.places, placeOffset(place), BalancerVipKey{}); err != nil {
		return err
	}
	return t.shorten(place)
}

// shorten ends runs of places that VIPs have left: places that no VIP follows
// needn't be passed over.
func (t *VIPs) shorten(place uint32) error {
	mask := t.size - 1
	for {
		here, err := read[BalancerVipPlace](t.places, place)
		if err != nil {
			return err
		}
		next, err := read[BalancerVipPlace](t.places, (place+1)&mask)
		if err != nil || here.Number != vipDeleted || next.Number != vipUnused {
			return err
		}
		if err := t.setNumber(place, vipUnused); err != nil {
			return err
		}
		place = (place - 1) & mask
	}
}

func (t *VIPs) setNumber(place, number uint32) error {
	return write(t.places, placeOffset(place)+unsafe.Offsetof(BalancerVipPlace{}.Number), number)
}

// Each calls yield with every VIP and the number of its service.
func (t *VIPs) Each(yield func(key BalancerVipKey, number uint32) error) error {
	for place := range t.size {
		found, err := read[BalancerVipPlace](t.places, place)
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

// orderStores makes earlier stores visible to programs no later than the next ones;
// arm64 may exchange plain stores. A store with release semantics and a load of it with
// acquire semantics, as Go's atomic operations are, keep accesses before the one and after
// the other apart (Arm Architecture Reference Manual DDI 0487, B2.3, barrier-ordered-before).
func (t *VIPs) orderStores() {
	t.stores.Add(1)
	t.stores.Load()
}
