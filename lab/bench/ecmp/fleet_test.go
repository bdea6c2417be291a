// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// before are the states that a balancer may be in before each action.
var before = map[action][]state{
	drain: {serving}, undrain: {drained}, stop: {serving}, start: {stopped},
}

// In long random histories every change is possible for all its balancers and leaves
// one serving; every action, number of balancers and balancer occurs.
func TestRandomChanges(t *testing.T) {
	for _, count := range []int{3, balancers, 8} {
		f, random := make(fleet, count), rand.New(rand.NewPCG(1, uint64(count)))
		actions, touched, numbers := map[action]int{}, map[int]bool{}, map[int]int{}
		for n := range 5000 {
			c := f.randomChange(random, n+1)
			next := f.after(c)
			actions[c.action]++
			for _, n := range c.balancers {
				touched[n] = true
				if !slices.Contains(before[c.action], f[n]) {
					t.Fatalf("%v of %v", c, f)
				}
			}
			if len(c.balancers) == 0 || len(next.in(serving)) == len(f.in(serving)) {
				t.Fatalf("%v of %v changes nothing", c, f)
			}
			kept := func(n int) bool { return slices.Contains(next.in(serving), n) }
			if !slices.ContainsFunc(f.in(serving), kept) {
				t.Fatalf("%v of %v: none serves on", c, f)
			}
			f = next
			numbers[len(f.in(serving))]++
		}
		if len(touched) != count || len(numbers) != count {
			t.Errorf("%d balancers: touched %v, numbers %v", count, touched, numbers)
		}
		for a := range before {
			if actions[a] < 100 {
				t.Errorf("%d balancers: %s %d times in 5000", count, a, actions[a])
			}
		}
	}
}

func TestSameSeedSameChanges(t *testing.T) {
	draw := func(seed uint64) []change {
		f, random := make(fleet, 4), rand.New(rand.NewPCG(seed, 0))
		var drawn []change
		for n := range 50 {
			c := f.randomChange(random, n+1)
			f = f.after(c)
			drawn = append(drawn, c)
		}
		return drawn
	}
	if !reflect.DeepEqual(draw(1), draw(1)) || reflect.DeepEqual(draw(1), draw(2)) {
		t.Error("the seed doesn't decide")
	}
}
