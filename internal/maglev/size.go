// SPDX-License-Identifier: Apache-2.0

package maglev

import "slices"

const (
	// entriesPerTurn keeps the shares of equal backends within 1 % of each other
	// (section 3.4: "we recommend that M be at least 100 × N").
	entriesPerTurn = 100
	// weightedSize is the largest size because of weights alone: 256 KiB,
	// which a second-level cache holds. Beyond it the size follows the number of
	// backends, and shares are as exact as that size allows.
	weightedSize = 131_071
)

// ladder holds the sizes that a ring can have: for each power of two the
// largest prime below it, so that a ring fills the power of two of entries that
// is set aside for it.
var ladder = [...]int{
	127, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, weightedSize,
	262_139, 524_287, 1_048_573, 2_097_143, 4_194_301,
}

// Size returns the number of entries that suits the backends: the smallest size
// of the ladder that has 100 entries for each turn, where a backend takes as
// many turns as its weight, divided by what all weights have in common. It is 0
// if no backend has a weight.
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
	want := entriesPerTurn * (total/common + idle)
	if want > weightedSize {
		want = max(weightedSize, entriesPerTurn*len(backends))
	}
	step, _ := slices.BinarySearch(ladder[:], want)
	return ladder[min(step, len(ladder)-1)]
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
