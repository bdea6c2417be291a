// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// States of a place of the VIP table that has no service.
const (
	vipNever = uint32(balancerVipNumberVIP_NEVER)
	vipLeft  = uint32(balancerVipNumberVIP_LEFT)
)

// vipProbes is VIP_PROBES of bpf/types.h.
const vipProbes = 32

// vipPlaces is the size of the table for that many services: a power of two,
// and so much larger that long runs of used places don't come about.
func vipPlaces(services int) int {
	places := 64
	for places < 4*services {
		places *= 2
	}
	return places
}

// vipHash is vip_hash of bpf/hash.h.
func vipHash(key balancerVipKey) uint64 {
	words := raw(&key)
	var hash uint64
	for i := range len(words) / 8 {
		if i == 0 && unmapped(key.Address).Is4() {
			continue
		}
		hash = (hash ^ binary.NativeEndian.Uint64(words[8*i:])) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	return hash
}

// probe calls yield with the places where a VIP may be, one after the other,
// until yield returns false. None has been changed since before it was read:
// only the agent writes the table.
func (t *tables) probe(key balancerVipKey, yield func(place uint32, found balancerVipPlace) bool) error {
	mask := t.maps.Vips.MaxEntries() - 1
	home := uint32(vipHash(key)>>32) & mask
	for i := range uint32(vipProbes) {
		place := (home + i) & mask
		found, err := read[balancerVipPlace](t.vips, place)
		if err != nil {
			return err
		}
		if !yield(place, found) {
			return nil
		}
	}
	return nil
}

// putVIP makes packets find the service of a VIP that is not in the table.
func (t *tables) putVIP(key balancerVipKey, number uint32) error {
	free, ok := uint32(0), false
	err := t.probe(key, func(place uint32, found balancerVipPlace) bool {
		free, ok = place, found.Number == vipNever || found.Number == vipLeft
		return !ok
	})
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("vip table: no place among %d", vipProbes)
	}
	// The number makes the place count: it is written last.
	if err := write(t.vips, placeOffset(free), key); err != nil {
		return err
	}
	return t.setNumber(free, number)
}

// deleteVIP makes packets not find a VIP any more.
func (t *tables) deleteVIP(key balancerVipKey) error {
	place, ok := uint32(0), false
	err := t.probe(key, func(at uint32, found balancerVipPlace) bool {
		place, ok = at, found.Number != vipNever && found.Number != vipLeft && found.Key == key
		return !ok && found.Number != vipNever
	})
	if err != nil || !ok {
		return err
	}
	if err := t.setNumber(place, vipLeft); err != nil {
		return err
	}
	return t.shorten(place)
}

// shorten ends runs of places that VIPs have left: what no VIP follows needn't
// be passed over.
func (t *tables) shorten(place uint32) error {
	mask := t.maps.Vips.MaxEntries() - 1
	for {
		here, err := read[balancerVipPlace](t.vips, place)
		if err != nil {
			return err
		}
		next, err := read[balancerVipPlace](t.vips, (place+1)&mask)
		if err != nil || here.Number != vipLeft || next.Number != vipNever {
			return err
		}
		if err := t.setNumber(place, vipNever); err != nil {
			return err
		}
		place = (place - 1) & mask
	}
}

func (t *tables) setNumber(place, number uint32) error {
	return write(t.vips, placeOffset(place)+unsafe.Offsetof(balancerVipPlace{}.Number), number)
}

// eachVIP calls yield with every VIP and the number of its service.
func (t *tables) eachVIP(yield func(key balancerVipKey, number uint32) error) error {
	for place := range t.maps.Vips.MaxEntries() {
		found, err := read[balancerVipPlace](t.vips, place)
		if err != nil {
			return err
		}
		if found.Number == vipNever || found.Number == vipLeft {
			continue
		}
		if err := yield(found.Key, found.Number); err != nil {
			return err
		}
	}
	return nil
}

// serviceVIPOffset is where a service's VIP is stored by its number.
func serviceVIPOffset(number uint32) uintptr {
	return uintptr(number) * unsafe.Sizeof(balancerVipKey{})
}

func placeOffset(place uint32) uintptr { return uintptr(place) * unsafe.Sizeof(balancerVipPlace{}) }
