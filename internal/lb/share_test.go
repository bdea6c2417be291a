// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		room          int
		demands, want []int
	}{
		{10, nil, []int{}},
		{10, []int{3, 7}, []int{3, 7}},
		{10, []int{30, 7}, []int{5, 5}},
		{10, []int{30, 2, 9}, []int{4, 2, 4}},
		{10, []int{30, 2, 9, 4}, []int{2, 2, 2, 2}},
		{2, []int{5, 5, 5}, []int{0, 0, 0}},
		{0, []int{1}, []int{0}},
	} {
		if got := lb.Share(c.room, c.demands); !slices.Equal(got, c.want) {
			t.Errorf("%d among %v: %v, want %v", c.room, c.demands, got, c.want)
		}
	}
}

// Each gets at least an equal part unless it demands less, and no more than one that demands more,
// and together they get no more than there is.
func TestShareIsFair(t *testing.T) {
	for range 10_000 {
		room, demands := rand.IntN(1000), make([]int, 1+rand.IntN(8))
		for i := range demands {
			demands[i] = rand.IntN(400)
		}
		shares, sum := lb.Share(room, demands), 0
		for i, s := range shares {
			if sum += s; s > demands[i] || s < min(demands[i], room/len(demands)) {
				t.Fatalf("%d among %v: %v", room, demands, shares)
			}
			for j, other := range shares {
				if demands[j] >= demands[i] && other < s {
					t.Fatalf("%d among %v: %v", room, demands, shares)
				}
			}
		}
		if sum > room {
			t.Fatalf("%d among %v: %v", room, demands, shares)
		}
	}
}
