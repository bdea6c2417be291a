// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"math"
	"testing"

	"fairlead.io/fairlead/internal/bench"
)

func TestCorrelation(t *testing.T) {
	for name, test := range map[string]struct {
		a, b bench.Runs
		want float64
	}{
		"a line":       {bench.Runs{1, 2, 3, 4}, bench.Runs{905, 1810, 2715, 3620}, 1},
		"the opposite": {bench.Runs{1, 2, 3}, bench.Runs{3, 2, 1}, -1},
		"constant":     {bench.Runs{1, 2, 3}, bench.Runs{7, 7, 7}, 0},
		"saturated":    {bench.Runs{1, 2, 3, 4}, bench.Runs{1, 2, 2, 2}, 0.7746},
	} {
		if got := correlation(test.a, test.b); math.Abs(got-test.want) > 1e-4 {
			t.Errorf("%s: %.4f, want %.4f", name, got, test.want)
		}
	}
}
