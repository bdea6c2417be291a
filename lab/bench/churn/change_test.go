// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Over long random histories every change changes something, is of the kind that
// it says, and leaves enough servers in use; every kind and every server has its
// turn.
func TestRandomChanges(t *testing.T) {
	for _, servers := range []int{leastInUse + 1, 12} {
		w := slices.Repeat(weights{1}, servers)
		random := rand.New(rand.NewPCG(1, uint64(servers)))
		kinds, touched := changeCounts{}, map[int]bool{}
		for range 5000 {
			c := w.randomChange(random)
			before := w[c.server]
			w[c.server] = c.weight
			kinds[c.kind]++
			touched[c.server] = true
			if c.weight == before || c.weight < absent || c.weight > maxWeight {
				t.Fatalf("%+v after weight %d", c, before)
			}
			if got := kindOf(before, c.weight); got != c.kind {
				t.Fatalf("%+v after weight %d: is %s", c, before, got)
			}
			if w.inUse() < leastInUse {
				t.Fatalf("%+v leaves %v", c, w)
			}
		}
		if kinds.total() != 5000 || len(kinds) != int(changeKinds) || len(touched) != servers {
			t.Errorf("%d servers: kinds %v, touched %v", servers, kinds, touched)
		}
		for kind, n := range kinds {
			if n < 500 {
				t.Errorf("%d servers: only %d of 5000 changes are %s", servers, n, kind)
			}
		}
	}
}

// kindOf returns the kind of change between two weights.
func kindOf(before, after int) changeKind {
	switch {
	case before == absent:
		return added
	case after == absent:
		return removed
	case after == 0:
		return drained
	default:
		return reweighted
	}
}

func TestSameSeedSameChanges(t *testing.T) {
	draw := func(seed uint64) []change {
		w, random := slices.Repeat(weights{1}, 12), rand.New(rand.NewPCG(seed, 0))
		var drawn []change
		for range 100 {
			c := w.randomChange(random)
			w[c.server] = c.weight
			drawn = append(drawn, c)
		}
		return drawn
	}
	if !slices.Equal(draw(1), draw(1)) || slices.Equal(draw(1), draw(2)) {
		t.Error("the seed doesn't decide")
	}
}
