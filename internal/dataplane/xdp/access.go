// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
)

// sourceLists are the lists of allowed and denied sources in the program's
// table (bpf/access.h). A list that packets may read never changes: its
// successor is written as a whole, under another number, before a view names
// it.
type sourceLists struct {
	table   *ebpf.Map
	numbers *arena
	grace   *grace
	room    int // prefixes that the table holds at most
	used    int // prefixes in the table
	retired []retiredList
	// adopted are lists that no adopted service has claimed yet, by number.
	adopted map[uint32]sourceList
}

// sourceList is one list; the zero list lets everybody in.
type sourceList struct {
	number   extent // of size 1
	verdicts map[netip.Prefix]bool
}

// retiredList is to be removed when packets no longer read it.
type retiredList struct {
	sourceList
	after ticket
}

func newSourceLists(table *ebpf.Map, c Capacity, g *grace) *sourceLists {
	// A change needs the old number and the new one.
	return &sourceLists{table: table, numbers: newArena("lists of sources", 2*uint32(c.Services), g), grace: g, room: c.Sources}
}

// stage returns a list that says what is wanted: the present one if it does. On
// an error nothing is taken.
func (l *sourceLists) stage(present sourceList, want map[netip.Prefix]bool) (sourceList, error) {
	l.sweep()
	switch {
	case maps.Equal(present.verdicts, want):
		return present, nil
	case len(want) == 0:
		return sourceList{}, nil
	case l.used+len(want) > l.room && len(l.retired) > 0:
		return sourceList{}, errBusy{l.grace.now()}
	case l.used+len(want) > l.room:
		return sourceList{}, fmt.Errorf("table sources is full: no room for %d prefixes beside %d", len(want), l.used)
	}
	number, _, err := l.numbers.alloc(1)
	if err != nil {
		return sourceList{}, err
	}
	list := sourceList{number, want}
	l.used += len(want)
	if err := l.write(list); err != nil {
		l.release(list)
		return sourceList{}, err
	}
	return list, nil
}

func (l *sourceLists) write(list sourceList) error {
	for prefix, allowed := range list.verdicts {
		verdict := balancerAccessACCESS_DENIED
		if allowed {
			verdict = balancerAccessACCESS_ALLOWED
		}
		if err := l.table.Put(sourceKey(list.number.base, prefix), verdict); err != nil {
			return fmt.Errorf("table sources: %s: %w", prefix, err)
		}
	}
	return nil
}

// retire gives back a list that packets may still be reading.
func (l *sourceLists) retire(list sourceList, after ticket) {
	if list.number.size > 0 {
		l.retired = append(l.retired, retiredList{list, after})
	}
}

// release gives back a list that no packet has seen.
func (l *sourceLists) release(list sourceList) {
	l.retire(list, 0)
	l.sweep()
}

// sweep removes the retired lists whose grace period is over. One that can't be
// removed keeps its room and is tried again.
func (l *sourceLists) sweep() {
	kept := l.retired[:0]
	for _, r := range l.retired {
		if !l.grace.over(r.after) || l.remove(r.sourceList) != nil {
			kept = append(kept, r)
		}
	}
	l.retired = kept
}

func (l *sourceLists) remove(list sourceList) error {
	for prefix := range list.verdicts {
		err := l.table.Delete(sourceKey(list.number.base, prefix))
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	l.used -= len(list.verdicts)
	l.numbers.release(list.number)
	return nil
}

// adopt reads the lists that an earlier agent left.
func (l *sourceLists) adopt() error {
	l.adopted = make(map[uint32]sourceList)
	var key balancerSourceKey
	var verdict balancerAccess
	it := l.table.Iterate()
	for it.Next(&key, &verdict) {
		list, known := l.adopted[key.List]
		if !known {
			list = sourceList{extent{key.List, 1}, make(map[netip.Prefix]bool)}
			l.adopted[key.List] = list
			if err := l.numbers.reserve(list.number); err != nil {
				return err
			}
		}
		list.verdicts[prefixOf(key)] = verdict == balancerAccessACCESS_ALLOWED
		l.used++
	}
	return it.Err()
}

// claim returns the adopted list that a service uses.
func (l *sourceLists) claim(number uint32) (sourceList, error) {
	list, found := l.adopted[number]
	if !found {
		return sourceList{}, fmt.Errorf("table sources: no list %d", number)
	}
	delete(l.adopted, number)
	return list, nil
}

// disown retires the adopted lists that nobody has claimed: an agent was stopped
// before it used them, or before it removed them.
func (l *sourceLists) disown() {
	now := l.grace.now()
	for _, list := range l.adopted {
		l.retire(list, now)
	}
	l.adopted = nil
}

// listBits is how much of a key comes before the address.
const listBits = 8 * int(unsafe.Sizeof(balancerSourceKey{}.List))

// mappedBits is how much longer a prefix is once IPv4 is mapped into IPv6.
const mappedBits = 96

func sourceKey(list uint32, p netip.Prefix) balancerSourceKey {
	bits := listBits + p.Bits()
	if p.Addr().Is4() {
		bits += mappedBits
	}
	return balancerSourceKey{PrefixLength: uint32(bits), List: list, Address: p.Addr().As16()}
}

// prefixOf is the inverse of sourceKey.
func prefixOf(key balancerSourceKey) netip.Prefix {
	address, bits := unmapped(key.Address), int(key.PrefixLength)-listBits
	if address.Is4() {
		bits -= mappedBits
	}
	return netip.PrefixFrom(address, bits)
}
