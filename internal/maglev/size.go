// SPDX-License-Identifier: Apache-2.0

package maglev

import "slices"

const (
	// entriesPerBackend makes the shares of equal backends differ by less than 7 %. The
	// paper recommends 100 entries for each (section 3.4), for shares within 1 %; flows, of
	// which a backend has some hundreds, differ by more. The entries that packets read of
	// all services have to stay in a cache.
	entriesPerBackend = 15
	// weightedSize is the largest size because of weights alone. Beyond it the size
	// follows the number of backends, and shares are as exact as that size allows.
	weightedSize = 65_521
)

// ladder holds the sizes that a ring can have: primes, so that a ring fills the power of
// two of entries that is set aside for it. They have room for 8, 16, 68, 272, 1,092 and 4,368
// equal backends, then for 17,475 and MaxBackends.
var ladder = [...]int{127, 251, 1021, 4093, 16_381, weightedSize, 262_139, 524_287}

// Size returns the number of entries that suits the backends: the smallest size of the
// ladder with 15 entries for each turn, where a backend takes as many turns as its
// weight, divided by the weights' common divisor; or with 15 entries for each backend,
// if that is beyond weightedSize. It is 0 if no backend has a weight.
//
// A change of size reshuffles the whole ring, so it must be rare. That is the
// work of the ladder's coarse steps, not of a memory of earlier sizes: nodes
// with different histories must build the same ring. For the same reason a
// backend of weight 0 counts as one turn: draining, and coming back, leaves the
// size of equally weighted backends as it is.
func Size(backends []Backend) int {
	common, total, idle := 0, 0, 0
	for _, b := range backends {
		if b.Weight == 0 {
			idle++
		}
		common = gcd(common, b.Weight)
		total += b.Weight
	}
	if total == 0 {
		return 0
	}
	want := min(entriesPerBackend*(total/common+idle), weightedSize)
	step, _ := slices.BinarySearch(ladder[:], max(want, entriesPerBackend*len(backends)))
	return ladder[step]
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// prime tests by trial division: a ring of 4 million entries takes a thousand.
func prime(n int) bool {
	if n < 2 || n%2 == 0 {
		return n == 2
	}
	for d := 3; d*d <= n; d += 2 {
		if n%d == 0 {
			return false
		}
	}
	return true
}
