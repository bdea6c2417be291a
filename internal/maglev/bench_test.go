// SPDX-License-Identifier: Apache-2.0

package maglev_test

import (
	"fmt"
	"testing"

	"fairlead.io/fairlead/internal/maglev"
)

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{16, 255, 4000} {
		backends := equal(n, 1)
		size := maglev.Size(backends)
		b.Run(fmt.Sprintf("backends=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := maglev.Build(seed, size, backends); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/entry")
		})
	}
}
