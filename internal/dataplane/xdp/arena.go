// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"fmt"
	"slices"
)

// extent is a run of elements of a table.
type extent struct{ base, size uint32 }

func (e extent) end() uint32 { return e.base + e.size }

// arena hands out runs of elements of one table. An extent that packets may
// still read is retired first and is handed out again only after a grace
// period.
type arena struct {
	name    string
	free    []extent // sorted by base, never adjacent
	retired []retirement
	grace   *grace
}

type retirement struct {
	extent
	after ticket
}

func newArena(name string, size uint32, g *grace) *arena {
	return &arena{name: name, free: []extent{{0, size}}, grace: g}
}

// alloc returns the first run of size elements; a run of none is always there.
// busy is set if there is none now but there may be one after a grace period.
func (a *arena) alloc(size uint32) (e extent, busy bool, err error) {
	if size == 0 {
		return extent{}, false, nil
	}
	a.collect()
	for i := range a.free {
		f := &a.free[i]
		if f.size < size {
			continue
		}
		e = extent{f.base, size}
		f.base += size
		f.size -= size
		if f.size == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return e, false, nil
	}
	return extent{}, len(a.retired) > 0, fmt.Errorf("table %s is full: no %d elements in a row", a.name, size)
}

// used is one more than the largest index in use of a table of that size.
func (a *arena) used(size uint32) uint32 {
	if n := len(a.free); n > 0 && a.free[n-1].end() == size {
		return a.free[n-1].base
	}
	return size
}

// reserve takes a given run out of the free ones: for what an agent adopts.
func (a *arena) reserve(e extent) error {
	if e.size == 0 {
		return nil
	}
	for i, f := range a.free {
		if f.base > e.base || f.end() < e.end() {
			continue
		}
		rest := []extent{{f.base, e.base - f.base}, {e.end(), f.end() - e.end()}}
		rest = slices.DeleteFunc(rest, func(x extent) bool { return x.size == 0 })
		a.free = slices.Replace(a.free, i, i+1, rest...)
		return nil
	}
	return fmt.Errorf("table %s: elements %d to %d are used twice", a.name, e.base, e.end())
}

// retire gives back a run that packets may still be reading.
func (a *arena) retire(e extent, after ticket) {
	if e.size > 0 {
		a.retired = append(a.retired, retirement{e, after})
	}
}

// release gives back a run that no packet has seen.
func (a *arena) release(e extent) {
	if e.size == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(a.free, e, func(x, y extent) int { return cmp.Compare(x.base, y.base) })
	a.free = slices.Insert(a.free, i, e)
	if i+1 < len(a.free) && a.free[i].end() == a.free[i+1].base {
		a.free[i].size += a.free[i+1].size
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].end() == a.free[i].base {
		a.free[i-1].size += a.free[i].size
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// collect releases the retired runs whose grace period is over.
func (a *arena) collect() {
	kept := a.retired[:0]
	for _, r := range a.retired {
		if a.grace.over(r.after) {
			a.release(r.extent)
		} else {
			kept = append(kept, r)
		}
	}
	a.retired = kept
}
