// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
)

// ErrMixedMark is why services can't have the same firewall mark.
var ErrMixedMark = errors.New("services with one firewall mark need equal settings")

// Alike returns an error unless a service and others of its firewall mark, which the data plane
// schedules as one, can have it. Services of another mark or family, or without one, don't matter.
func (s *Service) Alike(others ...Service) error {
	for i := range others {
		o := &others[i]
		if s.FirewallMark == 0 || o.FirewallMark != s.FirewallMark || o.Address.Is4() != s.Address.Is4() {
			continue
		}
		differ := func(what string, one, other any) error {
			return fmt.Errorf("firewall mark %d: %w: %s is %v of %s and %v of %s", s.FirewallMark, ErrMixedMark, what, one, s.VIP, other, o.VIP)
		}
		switch {
		case s.Forward != o.Forward:
			return differ("forward", s.Forward, o.Forward)
		case s.Scheduler != o.Scheduler:
			return differ("scheduler", s.Scheduler, o.Scheduler)
		case s.Affinity != o.Affinity:
			return differ("affinity", s.Affinity, o.Affinity)
		case s.AffinityTimeout != o.AffinityTimeout:
			return differ("affinityTimeout", s.AffinityTimeout, o.AffinityTimeout)
		case s.Port != o.Port && (s.translatesPorts() || o.translatesPorts()):
			return differ("port", s.Port, o.Port) // packets of a mark keep their ports
		}
	}
	return nil
}

// translatesPorts reports whether a backend has another port than the service.
func (s *Service) translatesPorts() bool {
	for i := range s.Backends {
		if s.Backends[i].Port != s.Port {
			return true
		}
	}
	return false
}

// Marks allots firewall marks of a kernel. A mark in an object is a name within its namespace; the
// number that packets get is one of the operator's, so that no object has the mark of another
// namespace, or of another program of the node. The holders are objects.
type Marks[K comparable] struct {
	holders map[K]markName
	users   map[markName]int
	numbers map[markName]uint32
	taken   map[uint32]bool
}

type markName struct {
	namespace string
	mark      uint32
}

// NewMarks returns marks without holders.
func NewMarks[K comparable]() *Marks[K] {
	return &Marks[K]{map[K]markName{}, map[markName]int{}, map[markName]uint32{}, map[uint32]bool{}}
}

// Set has an object hold a mark in a namespace, and no other one. It returns a number other than 0
// whose bits are all in the mask; 0 if there is no mark, or no such number is free. Restarts give a
// name the same number, unless several names want it.
func (m *Marks[K]) Set(holder K, namespace string, mark, mask uint32) uint32 {
	name := markName{namespace, mark}
	if before, held := m.holders[holder]; held && before != name {
		if m.users[before]--; m.users[before] == 0 {
			m.release(before)
			delete(m.users, before)
		}
		delete(m.holders, holder)
	}
	if mark == 0 {
		return 0
	}
	if m.holders[holder] != name {
		m.holders[holder] = name
		m.users[name]++
	}
	if m.numbers[name]&^mask != 0 {
		m.release(name)
	}
	if m.numbers[name] == 0 {
		if number := m.free(name, mask); number != 0 {
			m.numbers[name], m.taken[number] = number, true
		}
	}
	return m.numbers[name]
}

func (m *Marks[K]) release(name markName) {
	delete(m.taken, m.numbers[name])
	delete(m.numbers, name)
}

// free returns a number that isn't taken, from one on that depends on the name; 0 if there is none.
func (m *Marks[K]) free(name markName, mask uint32) uint32 {
	h := fnv.New64a()
	fmt.Fprint(h, name.mark, name.namespace)
	count := uint64(1)<<bits.OnesCount32(mask) - 1
	for i := range min(count, uint64(len(m.taken))+1) {
		if number := deposit(uint32((h.Sum64()+i)%count+1), mask); !m.taken[number] {
			return number
		}
	}
	return 0
}

// deposit spreads the low bits of a number over the bits of a mask.
func deposit(number, mask uint32) (spread uint32) {
	for ; mask != 0; mask &= mask - 1 {
		if number&1 != 0 {
			spread |= mask & -mask
		}
		number >>= 1
	}
	return spread
}
