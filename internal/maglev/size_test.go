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
		"eight":                       {equal(8, 1), 127},
		"nine":                        {equal(9, 1), 251},
		"common weight":               {equal(2, 200), 127},
		"sixteen":                     {equal(16, 1), 251},
		"seventeen":                   {equal(17, 1), 1021},
		"one of four drains":          {weighted(10, 10, 10, 0), 127},
		"weights 2, 4, 6 are 1, 2, 3": {weighted(2, 4, 6), 127},
		"255 backends":                {equal(255, 1), 4093},
		"1092 backends":               {equal(1092, 1), 16381},
		"1093 backends":               {equal(1093, 1), 65521},
		"4368 backends":               {equal(4368, 1), 65521},
		"4369 backends":               {equal(4369, 1), 262139},
		"weights up to the bound":     {weighted(256, 255, 254, 253, 252), 65521},
		"weights beyond the bound":    {append(equal(500, 256), weighted(1)...), 65521},
		"backends beyond the bound":   {append(equal(5000, 256), weighted(1)...), 262139},
		"the most backends":           {equal(maglev.MaxBackends, 1), 524287},
	} {
		if got := maglev.Size(test.backends); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Every size that Size can return is one that Build takes.
func TestSizes(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= maglev.MaxBackends; n += 1 + n/3 {
		size := maglev.Size(equal(n, 1))
		sizes[size] = true
		if size < 15*n {
			t.Errorf("%d backends: %d entries are too few", n, size)
		}
		build(t, size, equal(1, 1))
	}
	if len(sizes) != 8 {
		t.Errorf("%d sizes, want all 8 of the ladder", len(sizes))
	}
}
