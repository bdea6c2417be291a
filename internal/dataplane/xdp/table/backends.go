// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"unsafe"
)

// Backend is a backend as programs read it. Its number of the egress is set in the
// tables only.
type Backend struct {
	BalancerBackend
	BalancerEgress
	// Remote is the far end of a tunnel; with NAT the backend's address.
	Remote [16]byte
}

// BackendArena hands out runs of backends. Those that leave alike share an egress, which
// is freed with its last backend.
type BackendArena struct {
	*Arena
	backends, table memory // table has the egresses
	numbers         *Arena
	uses            map[BalancerEgress]*egressUse
}

type egressUse struct {
	number   uint16
	backends int
}

func newBackendArena(t *Tables, g *Grace) *BackendArena {
	a := &BackendArena{
		Arena:    newArena("backends", "dataplane.backends", uint32(t.Capacity.Backends), g),
		backends: t.backends,
		table:    t.egress,
		numbers:  newArena("egress", "", maxEgress, g),
		uses:     map[BalancerEgress]*egressUse{},
	}
	_ = a.numbers.Reserve(Extent{0, 1}) // the number of unused slots
	return a
}

// Alloc is Arena.Alloc; the slots of the run are unused.
func (a *BackendArena) Alloc(size uint32) (Extent, error) {
	run, err := a.Arena.Alloc(size)
	if err != nil {
		return run, err
	}
	const each = unsafe.Sizeof(BalancerBackend{})
	if _, err := a.backends.WriteAt(make([]byte, uintptr(size)*each), int64(uintptr(run.Base)*each)); err != nil {
		a.Arena.Release(run)
		return Extent{}, err
	}
	return run, nil
}

// use returns the number of an egress for one more backend.
func (a *BackendArena) use(e BalancerEgress) (uint16, error) {
	if e == (BalancerEgress{}) {
		return 0, nil
	}
	u := a.uses[e]
	if u == nil {
		free, err := a.numbers.Alloc(1)
		if err != nil {
			return 0, err
		}
		if err := write(a.table, uintptr(free.Base)*unsafe.Sizeof(e), e); err != nil {
			a.numbers.Release(free)
			return 0, err
		}
		u = &egressUse{number: uint16(free.Base)}
		a.uses[e] = u
	}
	u.backends++
	return u.number, nil
}

// adopt notes that a backend has the egress of that number, and returns it.
func (a *BackendArena) adopt(number uint16) (BalancerEgress, error) {
	if number == 0 {
		return BalancerEgress{}, nil
	}
	e, err := read[BalancerEgress](a.table, uint32(number))
	if err != nil {
		return e, err
	}
	u := a.uses[e]
	if u == nil {
		if err := a.numbers.Reserve(Extent{uint32(number), 1}); err != nil {
			return e, err
		}
		u = &egressUse{number: number}
		a.uses[e] = u
	}
	if u.number != number {
		return e, fmt.Errorf("table egress: %d and %d are equal", u.number, number)
	}
	u.backends++
	return e, nil
}

// leave calls free with the egresses that only the backends of the run had.
func (a *BackendArena) leave(run Extent, free func(Extent)) {
	for i := range run.Size {
		b, _ := read[BalancerBackend](a.backends, run.Base+i) // the run is in the table
		e, _ := read[BalancerEgress](a.table, uint32(b.Egress))
		a.drop(e, free)
	}
}

// drop calls free with an egress if no other backend has it.
func (a *BackendArena) drop(e BalancerEgress, free func(Extent)) {
	u := a.uses[e]
	if u == nil { // of an unused slot
		return
	}
	if u.backends--; u.backends == 0 {
		delete(a.uses, e)
		free(Extent{uint32(u.number), 1})
	}
}

// Retire is Arena.Retire.
func (a *BackendArena) Retire(run Extent, after Ticket) {
	a.leave(run, func(e Extent) { a.numbers.Retire(e, after) })
	a.Arena.Retire(run, after)
}

// Release is Arena.Release.
func (a *BackendArena) Release(run Extent) {
	a.leave(run, a.numbers.Release)
	a.Arena.Release(run)
}

// WriteBackend stores an element of a run that was allocated, once, before packets read it.
func (t *Tables) WriteBackend(index uint32, b Backend, detail BalancerBackendDetail) (err error) {
	if b.Egress, err = t.BackendEntries.use(b.BalancerEgress); err != nil {
		return err
	}
	if err := write(t.backends, uintptr(index)*unsafe.Sizeof(b.BalancerBackend), b.BalancerBackend); err != nil {
		t.BackendEntries.drop(b.BalancerEgress, t.BackendEntries.numbers.Release) // the run doesn't name it
		return err
	}
	return errors.Join(
		write(t.remotes, uintptr(index)*unsafe.Sizeof(b.Remote), BalancerAddress{Bytes: b.Remote}),
		write(t.details, uintptr(index)*unsafe.Sizeof(detail), detail),
	)
}

// WriteBefore stores the value of the counter of a backend in use when the backend got it;
// only agents read it.
func WriteBefore(t *Tables, index uint32, before BalancerTraffic) error {
	var detail BalancerBackendDetail
	return write(t.details, uintptr(index)*unsafe.Sizeof(detail)+unsafe.Offsetof(detail.Before), before)
}

// ReadBackend returns an element that an earlier agent has written.
func (t *Tables) ReadBackend(index uint32) (b Backend, detail BalancerBackendDetail, err error) {
	if b.BalancerBackend, err = read[BalancerBackend](t.backends, index); err != nil {
		return b, detail, err
	}
	t.generation = max(t.generation, b.Generation)
	if b.BalancerEgress, err = t.BackendEntries.adopt(b.Egress); err != nil {
		return b, detail, err
	}
	b.Egress = 0
	remote, err := read[BalancerAddress](t.remotes, index)
	if err != nil {
		return b, detail, err
	}
	b.Remote = remote.Bytes
	detail, err = read[BalancerBackendDetail](t.details, index)
	return b, detail, err
}
