// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
)

// stepped is a grace whose periods end only with end.
func stepped(t *testing.T) (g *Grace, end func()) {
	t.Helper()
	begun, ended := make(chan struct{}), make(chan struct{})
	g = newGrace(func() error {
		select {
		case begun <- struct{}{}:
			<-ended
			return nil
		case <-t.Context().Done():
			return nil
		}
	})
	return g, func() {
		next := g.Newest() + 1
		<-begun
		ended <- struct{}{}
		must(t, g.Wait(t.Context(), next))
	}
}

// Histories of allocations: no element has two owners, retired ones wait for
// their grace period, and at the end everything is in one piece again.
func TestArena(t *testing.T) {
	const size = 1 << 10
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	g, end := stepped(t)
	a := newArena("test", "", size, g)
	owned := make([]bool, size)
	mark := func(e Extent, to bool) {
		for i := e.Base; i < e.end(); i++ {
			if owned[i] == to {
				t.Fatalf("seed %d: element %d: owned %t twice", seed, i, to)
			}
			owned[i] = to
		}
	}
	var live, waiting []Extent
	var last Ticket
	for range 20_000 {
		switch e, err := a.Alloc(1 + random.Uint32N(40)); {
		case err == nil:
			mark(e, true)
			live = append(live, e)
		case len(live) == 0 && len(waiting) == 0:
			t.Fatalf("seed %d: full without an owner: %v", seed, err)
		}
		for len(live) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(live))
			e := live[i]
			live[i], live = live[len(live)-1], live[:len(live)-1]
			if random.IntN(2) == 0 {
				mark(e, false)
				a.Release(e)
			} else {
				waiting = append(waiting, e)
				last = g.Now()
				a.Retire(e, last)
			}
		}
		if len(waiting) > 0 && random.IntN(8) == 0 {
			for !g.Over(last) {
				end()
			}
			for _, e := range waiting {
				mark(e, false)
			}
			waiting = nil
		}
	}
	for _, e := range live {
		a.Release(e)
	}
	for !g.Over(last) {
		end()
	}
	a.collect()
	if len(a.free) != 1 || a.free[0] != (Extent{0, size}) {
		t.Errorf("seed %d: free at the end: %v, want all in one piece", seed, a.free)
	}
}

func TestArenaReserve(t *testing.T) {
	g, _ := stepped(t)
	a := newArena("test", "", 10, g)
	for _, e := range []Extent{{3, 2}, {0, 1}, {9, 1}, {5, 0}} {
		must(t, a.Reserve(e))
	}
	for _, e := range []Extent{{3, 1}, {2, 2}, {9, 1}, {8, 3}} {
		if a.Reserve(e) == nil {
			t.Errorf("%v was reserved twice", e)
		}
	}
	if e, err := a.Alloc(4); err != nil || e != (Extent{5, 4}) {
		t.Errorf("alloc(4) = %v, %v; want 5 to 8", e, err)
	}
	_, err := a.Alloc(3)
	if _, busy := errors.AsType[BusyError](err); err == nil || busy {
		t.Errorf("alloc(3) of a full table: busy %t, %v", busy, err)
	}
}

// A ticket that is taken while a grace period runs ends with the next one.
func TestGrace(t *testing.T) {
	g, end := stepped(t)
	first := g.Now()
	end()
	if !g.Over(first) {
		t.Errorf("ticket %d is not over", first)
	}
	second := g.Now()
	if g.Over(second) || second == first {
		t.Errorf("ticket %d is over although nothing has passed since %d", second, first)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(cancelled, second); !errors.Is(err, context.Canceled) {
		t.Errorf("wait with a cancelled context: %v", err)
	}
	end()
	if !g.Over(second) {
		t.Errorf("ticket %d is not over", second)
	}
	g.Close()
	if err := g.Wait(t.Context(), g.Now()+1); !errors.Is(err, ErrClosed) {
		t.Errorf("wait after close: %v", err)
	}
}
