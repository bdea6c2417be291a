// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"fmt"
	"slices"
)

// Extent is a run of elements of a table.
type Extent struct{ Base, Size uint32 }

func (e Extent) end() uint32 { return e.Base + e.Size }

// Arena hands out runs of elements of one table. An extent that packets may
// still read is retired first and is handed out again only after a grace
// period.
type Arena struct {
	name    string
	setting string   // that the table's size follows from; empty for none
	free    []Extent // sorted by base, never adjacent
	retired []retirement
	grace   *Grace
}

type retirement struct {
	Extent
	after Ticket
}

func newArena(name, setting string, size uint32, g *Grace) *Arena {
	return &Arena{name: name, setting: setting, free: []Extent{{0, size}}, grace: g}
}

// Alloc returns the first run of size elements; a run of none is always there.
// The error is errBusy if there is none now but there may be one after a grace
// period.
func (a *Arena) Alloc(size uint32) (Extent, error) {
	if size == 0 {
		return Extent{}, nil
	}
	a.collect()
	for i := range a.free {
		f := &a.free[i]
		if f.Size < size {
			continue
		}
		e := Extent{f.Base, size}
		f.Base += size
		f.Size -= size
		if f.Size == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return e, nil
	}
	if len(a.retired) > 0 {
		return Extent{}, BusyError{a.grace.Now()}
	}
	return Extent{}, FullError{a.name, a.setting, size}
}

// FullError is returned if a table has no run of that size, and no retired one.
type FullError struct {
	table, setting string
	size           uint32
}

func (e FullError) Error() string {
	text := fmt.Sprintf("table %s is full: no %d elements in a row", e.table, e.size)
	if e.setting != "" {
		text += ": raise " + e.setting
	}
	return text
}

// used is one more than the largest index in use of a table of that size.
func (a *Arena) used(size uint32) uint32 {
	if n := len(a.free); n > 0 && a.free[n-1].end() == size {
		return a.free[n-1].Base
	}
	return size
}

// Reserve takes a given run out of the free ones: for elements that an agent
// adopts.
func (a *Arena) Reserve(e Extent) error {
	if e.Size == 0 {
		return nil
	}
	for i, f := range a.free {
		if f.Base > e.Base || f.end() < e.end() {
			continue
		}
		rest := []Extent{{f.Base, e.Base - f.Base}, {e.end(), f.end() - e.end()}}
		rest = slices.DeleteFunc(rest, func(x Extent) bool { return x.Size == 0 })
		a.free = slices.Replace(a.free, i, i+1, rest...)
		return nil
	}
	return fmt.Errorf("table %s: elements %d to %d are used twice", a.name, e.Base, e.end())
}

// Retire frees a run that packets may still be reading.
func (a *Arena) Retire(e Extent, after Ticket) {
	if e.Size > 0 {
		a.retired = append(a.retired, retirement{e, after})
	}
}

// Release frees a run that no packet has seen.
func (a *Arena) Release(e Extent) {
	if e.Size == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(a.free, e, func(x, y Extent) int { return cmp.Compare(x.Base, y.Base) })
	a.free = slices.Insert(a.free, i, e)
	if i+1 < len(a.free) && a.free[i].end() == a.free[i+1].Base {
		a.free[i].Size += a.free[i+1].Size
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].end() == a.free[i].Base {
		a.free[i-1].Size += a.free[i].Size
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// collect releases the retired runs whose grace period is over.
func (a *Arena) collect() {
	kept := a.retired[:0]
	for _, r := range a.retired {
		if a.grace.Over(r.after) {
			a.Release(r.Extent)
		} else {
			kept = append(kept, r)
		}
	}
	a.retired = kept
}
