// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"maps"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
)

// SourceLists are the lists of allowed and denied sources in the program's
// table (bpf/pick/admit.h). A list that packets may read never changes: its
// successor is written as a whole, under another number, before a view names
// it.
type SourceLists struct {
	table   *ebpf.Map
	numbers *Arena
	grace   *Grace
	room    int // prefixes that the table holds at most
	Used    int // prefixes in the table
	retired []retiredList
	// adopted are lists that no adopted service has claimed yet, by number.
	adopted map[uint32]SourceList
}

// SourceList is one list; the zero list lets everybody in.
type SourceList struct {
	Number   Extent // of size 1
	verdicts map[netip.Prefix]bool
}

// retiredList is to be removed when packets no longer read it.
type retiredList struct {
	SourceList
	after Ticket
}

func newSourceLists(table *ebpf.Map, c Capacity, g *Grace) *SourceLists {
	// A change needs the old number and the new one.
	return &SourceLists{table: table, numbers: newArena("lists of sources", "dataplane.services", 2*uint32(c.Services), g), grace: g, room: c.Sources}
}

// Stage returns a list with these verdicts: the present one if it has them. On an
// error nothing is taken.
func (l *SourceLists) Stage(present SourceList, want map[netip.Prefix]bool) (SourceList, error) {
	l.Sweep()
	switch {
	case maps.Equal(present.verdicts, want):
		return present, nil
	case len(want) == 0:
		return SourceList{}, nil
	case l.Used+len(want) > l.room && len(l.retired) > 0:
		return SourceList{}, BusyError{l.grace.Now()}
	case l.Used+len(want) > l.room:
		return SourceList{}, fmt.Errorf("table sources is full: no room for %d prefixes in addition to %d", len(want), l.Used)
	}
	number, err := l.numbers.Alloc(1)
	if err != nil {
		return SourceList{}, err
	}
	list := SourceList{number, want}
	l.Used += len(want)
	if err := l.write(list); err != nil {
		l.Retire(list, 0)
		return SourceList{}, err
	}
	return list, nil
}

func (l *SourceLists) write(list SourceList) error {
	for prefix, allowed := range list.verdicts {
		verdict := BalancerAccessACCESS_DENIED
		switch {
		case allowed:
			verdict = BalancerAccessACCESS_ALLOWED
		case prefix.Bits() == 0:
			verdict = BalancerAccessACCESS_UNLISTED
		}
		if err := l.table.Put(sourceKey(list.Number.Base, prefix), verdict); err != nil {
			return fmt.Errorf("table sources: %s: %w", prefix, err)
		}
	}
	return nil
}

// Retire frees a list that packets may still be reading.
func (l *SourceLists) Retire(list SourceList, after Ticket) {
	if list.Number.Size > 0 {
		l.retired = append(l.retired, retiredList{list, after})
	}
	l.Sweep()
}

// Sweep removes the retired lists whose grace period is over. One that can't be
// removed keeps its room and is tried again.
func (l *SourceLists) Sweep() {
	kept := l.retired[:0]
	for _, r := range l.retired {
		if !l.grace.Over(r.after) || l.remove(r.SourceList) != nil {
			kept = append(kept, r)
		}
	}
	l.retired = kept
}

func (l *SourceLists) remove(list SourceList) error {
	for prefix := range list.verdicts {
		if err := Delete(l.table, sourceKey(list.Number.Base, prefix)); err != nil {
			return err
		}
	}
	l.Used -= len(list.verdicts)
	l.numbers.Release(list.Number)
	return nil
}

// adopt reads the lists that an earlier agent left.
func (l *SourceLists) adopt() error {
	l.adopted = make(map[uint32]SourceList)
	var key BalancerSourceKey
	var verdict BalancerAccess
	it := l.table.Iterate()
	for it.Next(&key, &verdict) {
		list, known := l.adopted[key.List]
		if !known {
			list = SourceList{Extent{key.List, 1}, make(map[netip.Prefix]bool)}
			l.adopted[key.List] = list
			if err := l.numbers.Reserve(list.Number); err != nil {
				return err
			}
		}
		list.verdicts[prefixOf(key)] = verdict == BalancerAccessACCESS_ALLOWED
		l.Used++
	}
	return it.Err()
}

// Claim returns the adopted list that a service uses.
func (l *SourceLists) Claim(number uint32) (SourceList, error) {
	list, found := l.adopted[number]
	if !found {
		return SourceList{}, fmt.Errorf("table sources: no list %d", number)
	}
	delete(l.adopted, number)
	return list, nil
}

// disown retires the adopted lists that no service has claimed: an agent was stopped
// before it used them, or before it removed them.
func (l *SourceLists) disown() {
	now := l.grace.Now()
	for _, list := range l.adopted {
		l.Retire(list, now)
	}
	l.adopted = nil
}

// listBits is how much of a key comes before the address.
const listBits = 8 * int(unsafe.Sizeof(BalancerSourceKey{}.List))

// mappedBits is how much longer a prefix is once IPv4 is mapped into IPv6.
const mappedBits = 96

func sourceKey(list uint32, p netip.Prefix) BalancerSourceKey {
	bits := listBits + p.Bits()
	if p.Addr().Is4() {
		bits += mappedBits
	}
	return BalancerSourceKey{PrefixLength: uint32(bits), List: list, Address: p.Addr().As16()}
}

// prefixOf is the inverse of sourceKey.
func prefixOf(key BalancerSourceKey) netip.Prefix {
	address, bits := Unmapped(key.Address), int(key.PrefixLength)-listBits
	if address.Is4() {
		bits -= mappedBits
	}
	return netip.PrefixFrom(address, bits)
}
