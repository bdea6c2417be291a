// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
)

// stepped is a grace that ends periods only when told to.
func stepped(t *testing.T) (g *grace, end func()) {
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
		next := g.newest() + 1
		<-begun
		ended <- struct{}{}
		if err := g.wait(t.Context(), next); err != nil {
			t.Error(err)
		}
	}
}

// Histories of allocations: no element has two owners, retired ones wait for
// their grace period, and at the end everything is in one piece again.
func TestArena(t *testing.T) {
	const size = 1 << 10
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	g, end := stepped(t)
	a := newArena("test", size, g)
	owned := make([]bool, size)
	mark := func(e extent, to bool) {
		for i := e.base; i < e.end(); i++ {
			if owned[i] == to {
				t.Fatalf("seed %d: element %d: owned %t twice", seed, i, to)
			}
			owned[i] = to
		}
	}
	var live, waiting []extent
	var last ticket
	for range 20_000 {
		switch e, _, err := a.alloc(1 + random.Uint32N(40)); {
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
				a.release(e)
			} else {
				waiting = append(waiting, e)
				last = g.now()
				a.retire(e, last)
			}
		}
		if len(waiting) > 0 && random.IntN(8) == 0 {
			for !g.over(last) {
				end()
			}
			for _, e := range waiting {
				mark(e, false)
			}
			waiting = nil
		}
	}
	for _, e := range live {
		a.release(e)
	}
	for !g.over(last) {
		end()
	}
	a.collect()
	if len(a.free) != 1 || a.free[0] != (extent{0, size}) {
		t.Errorf("seed %d: free at the end: %v, want all in one piece", seed, a.free)
	}
}

func TestArenaReserve(t *testing.T) {
	g, _ := stepped(t)
	a := newArena("test", 10, g)
	for _, e := range []extent{{3, 2}, {0, 1}, {9, 1}, {5, 0}} {
		if err := a.reserve(e); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []extent{{3, 1}, {2, 2}, {9, 1}, {8, 3}} {
		if a.reserve(e) == nil {
			t.Errorf("%v was reserved twice", e)
		}
	}
	if e, _, err := a.alloc(4); err != nil || e != (extent{5, 4}) {
		t.Errorf("alloc(4) = %v, %v; want 5 to 8", e, err)
	}
	if _, busy, err := a.alloc(3); err == nil || busy {
		t.Errorf("alloc(3) of a full table: busy %t, %v", busy, err)
	}
}

// A ticket that is taken while a grace period runs ends with the next one.
func TestGrace(t *testing.T) {
	g, end := stepped(t)
	first := g.now()
	end()
	if !g.over(first) {
		t.Errorf("ticket %d is not over", first)
	}
	second := g.now()
	if g.over(second) || second == first {
		t.Errorf("ticket %d is over although nothing has passed since %d", second, first)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.wait(cancelled, second); !errors.Is(err, context.Canceled) {
		t.Errorf("wait with a cancelled context: %v", err)
	}
	end()
	if !g.over(second) {
		t.Errorf("ticket %d is not over", second)
	}
	g.close()
	if err := g.wait(t.Context(), g.now()+1); !errors.Is(err, errClosed) {
		t.Errorf("wait after close: %v", err)
	}
}
