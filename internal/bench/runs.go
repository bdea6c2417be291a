// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"slices"
)

// Runs are the measurements of one quantity, in the order of the rounds.
type Runs []float64

// Median is the middle measurement, or the mean of the two in the middle; 0 of
// none.
func (r Runs) Median() float64 {
	if len(r) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile is the smallest measurement that so many in a hundred, 1 to 100, don't
// exceed; 0 of none.
func (r Runs) Percentile(p int) float64 {
	if len(r) == 0 {
		return 0
	}
	const hundred = 100
	sorted := slices.Sorted(slices.Values(r))
	return sorted[(len(r)*p+hundred-1)/hundred-1]
}

// Bounds are the smallest and the largest measurement; 0 of none.
func (r Runs) Bounds() (low, high float64) {
	if len(r) == 0 {
		return 0, 0
	}
	return slices.Min(r), slices.Max(r)
}

// Ratio is the median of a[i]/b[i]. Both sides of a round are measured one after
// the other, so what slows the whole machine for a while cancels out.
func Ratio(a, b Runs) (float64, error) {
	if len(a) != len(b) || len(a) == 0 {
		return 0, fmt.Errorf("%d rounds over %d", len(a), len(b))
	}
	ratios := make(Runs, len(a))
	for i := range a {
		if b[i] == 0 {
			return 0, errors.New("division by zero")
		}
		ratios[i] = a[i] / b[i]
	}
	return ratios.Median(), nil
}
