// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Sessions is a table of NAT sessions, whose entries are at places of an array
// (bpf/nat/places.h).
type Sessions struct {
	secrets [2]uint64 // place_secret_low and _high of bpf/core/config.h

	mu     sync.RWMutex // no reader is left when the mapping ends
	memory []byte
	places []BalancerSessionPlace // none in a closed table
}

// The values of a place's key that aren't the key of an entry, and how many places beyond
// those that keys select a table has.
const (
	placeFree  = uint64(BalancerPlaceKeyPLACE_FREE)
	placeBusy  = uint64(BalancerPlaceKeyPLACE_BUSY)
	placesMore = int(BalancerPlaceWindowPLACE_WINDOW)
)

// sessionPlaces is the size of a table for that many entries: hardly a window is full
// until two thirds of the table are.
func sessionPlaces(entries int) int { return entries + entries/2 + placesMore }

// open maps a table into this process, in the place of the one before.
func (s *Sessions) open(m *ebpf.Map) error {
	size := int(m.MaxEntries()) * int(m.ValueSize())
	memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("table %s: %w", m, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.memory
	s.memory = memory
	s.places = unsafe.Slice((*BalancerSessionPlace)(unsafe.Pointer(unsafe.SliceData(memory))), m.MaxEntries())
	if before == nil {
		return nil
	}
	return unix.Munmap(before)
}

// Close ends the use of the table, which stays.
func (s *Sessions) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory == nil {
		return nil
	}
	s.places = nil
	return unix.Munmap(s.memory)
}

// first is the first place of a key (first_place of bpf/nat/places.h).
func (s *Sessions) first(key uint64) int {
	hash := uint64(uint32(key))*s.secrets[0] + (key>>32)*s.secrets[1]
	return int(uint64(spread(uint32(hash>>32))) * uint64(len(s.places)-placesMore) >> 32)
}

// find returns the index of the key's place, or -1.
func (s *Sessions) find(key uint64) int {
	if len(s.places) == 0 {
		return -1
	}
	first := s.first(key)
	near := atomic.LoadUint64(&s.places[first].Near)
	for i := range placesMore {
		if near>>i&1 == 1 && atomic.LoadUint64(&s.places[first+i].Key) == key {
			return first + i
		}
	}
	return -1
}

// Each calls yield with every entry, by its key. Entries that come and go meanwhile may
// be missed.
func (s *Sessions) Each(yield func(key uint64, entry *BalancerNatSession)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.each(Part{0, 1}, func(_ int, key uint64, entry *BalancerNatSession) { yield(key, entry) })
}

// EachIn is Each for a part of the table.
func (s *Sessions) EachIn(part Part, yield func(entry *BalancerNatSession)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.each(part, func(_ int, _ uint64, entry *BalancerNatSession) { yield(entry) })
}

// DeleteIn deletes the entries in a part of the table that are over.
func (s *Sessions) DeleteIn(part Part, over func(entry *BalancerNatSession) bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.each(part, func(index int, key uint64, entry *BalancerNatSession) {
		if over(entry) {
			s.delete(index, key)
		}
	})
}

// Part is one of several parts of a table, counted from 0.
type Part struct{ Index, Of int }

// partPlaces is the number of places of a part: about 25 MB, some milliseconds' work.
const partPlaces = 1 << 18

// Parts is in how many parts the table is swept.
func (s *Sessions) Parts() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.places)/partPlaces + 1
}

func (s *Sessions) each(part Part, yield func(index int, key uint64, entry *BalancerNatSession)) {
	for i := len(s.places) * part.Index / part.Of; i < len(s.places)*(part.Index+1)/part.Of; i++ {
		key := atomic.LoadUint64(&s.places[i].Key)
		if key <= placeBusy {
			continue
		}
		entry := s.places[i].Session
		if atomic.LoadUint64(&s.places[i].Key) == key { // or a packet has changed it meanwhile
			yield(i, key, &entry)
		}
	}
}

// Delete deletes the entry with that key, if there is one.
func (s *Sessions) Delete(key uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if index := s.find(key); index >= 0 {
		s.delete(index, key)
	}
}

// delete deletes the entry at a place, if it still has that key.
func (s *Sessions) delete(index int, key uint64) {
	if !atomic.CompareAndSwapUint64(&s.places[index].Key, key, placeBusy) {
		return
	}
	first := s.first(key)
	atomic.AndUint64(&s.places[first].Near, ^(uint64(1) << (index - first)))
	atomic.StoreUint64(&s.places[index].Key, placeFree)
}

// Put inserts an entry, or replaces that with the same key. Packets must not insert it at
// the same time.
func (s *Sessions) Put(key uint64, entry *BalancerNatSession) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.places) == 0 || key <= placeBusy {
		return errNoPlace
	}
	if index := s.find(key); index >= 0 {
		s.places[index].Session = *entry
		return nil
	}
	first := s.first(key)
	for i := range placesMore {
		place := &s.places[first+i]
		if atomic.CompareAndSwapUint64(&place.Key, placeFree, placeBusy) {
			place.Session = *entry
			atomic.OrUint64(&s.places[first].Near, 1<<i)
			atomic.StoreUint64(&place.Key, key)
			return nil
		}
	}
	return errNoPlace
}

var errNoPlace = errors.New("no place for the session")
