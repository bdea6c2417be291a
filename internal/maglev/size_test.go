// SPDX-License-Identifier: Apache-2.0

package maglev_test

import (
	"testing"

	"fairlead.io/fairlead/internal/maglev"
)

func TestSize(t *testing.T) {
	for name, test := range map[string]struct {
		backends []maglev.Backend
		want     int
	}{
		"nothing":                     {nil, 0},
		"only weight 0":               {weighted(0, 0), 0},
		"one":                         {equal(1, 1), 127},
		"two":                         {equal(2, 1), 251},
		"common weight":               {equal(2, 200), 251},
		"five":                        {equal(5, 1), 509},
		"six":                         {equal(6, 1), 1021},
		"one of five drains":          {weighted(10, 10, 10, 10, 0), 509},
		"weights 2, 4, 6 are 1, 2, 3": {weighted(2, 4, 6), 1021},
		"255 backends":                {equal(255, 1), 32749},
		"4000 backends":               {equal(4000, 1), 524287},
		"weights up to the bound":     {weighted(256, 255, 254, 253, 252), 131071},
		"weights beyond the bound":    {append(equal(500, 256), weighted(1)...), 131071},
		"backends beyond the bound":   {append(equal(2000, 256), weighted(1)...), 262139},
		"the most backends":           {equal(maglev.MaxBackends, 1), 4194301},
	} {
		if got := maglev.Size(test.backends); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Every size that Size can return is one that Build takes.
func TestSizesAreUsable(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= maglev.MaxBackends; n += 1 + n/2 {
		size := maglev.Size(equal(n, 1))
		sizes[size] = true
		if size < 100*n {
			t.Errorf("%d backends: %d entries are fewer than 100 for each", n, size)
		}
		build(t, size, equal(1, 1))
	}
	if len(sizes) != 16 {
		t.Errorf("%d sizes, want all 16 of the ladder", len(sizes))
	}
}
