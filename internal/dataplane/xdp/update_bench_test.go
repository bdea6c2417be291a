// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// BenchmarkUpdate programs a service with all its backends, and then with one of them down. The
// time for each backend doesn't depend on their number.
func BenchmarkUpdate(b *testing.B) {
	for _, backends := range []int{1000, 4000, 16000} {
		b.Run(fmt.Sprintf("%d backends", backends), func(b *testing.B) {
			p, err := OpenUnattached(Config{Log: slog.New(slog.DiscardHandler), Synchronize: func() error { return nil }}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			var first, change time.Duration
			for b.Loop() {
				svc := manyBackends(vip4, backends)
				begun := time.Now()
				if _, err := p.Update(b.Context(), svc); err != nil {
					b.Fatal(err)
				}
				programmed := time.Now()
				svc.Backends[0].Down = true
				if _, err := p.Update(b.Context(), svc); err != nil {
					b.Fatal(err)
				}
				first, change = first+programmed.Sub(begun), change+time.Since(programmed)
				if err := p.Delete(b.Context(), svc.VIP); err != nil {
					b.Fatal(err)
				}
			}
			each := float64(b.N * backends)
			b.ReportMetric(float64(first.Nanoseconds())/each, "ns/backend")
			b.ReportMetric(float64(change.Nanoseconds())/each, "ns/backend-changed")
			b.ReportMetric(0, "ns/op")
		})
	}
}
