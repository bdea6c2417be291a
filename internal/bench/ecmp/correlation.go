// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"math"

	"fairlead.io/fairlead/internal/bench"
)

// correlation is Pearson's of two series of the same length: 1 if they rise
// together in a straight line, 0 if one of them is constant.
func correlation(a, b bench.Runs) float64 {
	meanA, meanB := mean(a), mean(b)
	var both, ofA, ofB float64
	for i := range a {
		x, y := a[i]-meanA, b[i]-meanB
		both, ofA, ofB = both+x*y, ofA+x*x, ofB+y*y
	}
	if ofA == 0 || ofB == 0 {
		return 0
	}
	return both / math.Sqrt(ofA*ofB)
}

func mean(runs bench.Runs) float64 { return sum(runs) / float64(len(runs)) }

func sum(runs bench.Runs) float64 {
	total := 0.0
	for _, v := range runs {
		total += v
	}
	return total
}
