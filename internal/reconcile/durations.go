// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"iter"
	"slices"
	"time"
)

// bounds of the classes that durations are counted in: from a service that is
// as it was to thousands that come at once.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second,
}

// Durations is a histogram. The zero value has counted nothing; a copy stays as
// it is.
type Durations struct {
	Count uint64
	Sum   time.Duration
	// classes counts the durations up to each bound, and above the bound before.
	classes [len(bounds)]uint64
}

// UpTo goes through the histogram's bounds, in ascending order: how many
// durations were no longer than each. What is longer than the last one is in
// Count only.
func (d Durations) UpTo() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		sum := uint64(0)
		for i, bound := range bounds {
			sum += d.classes[i]
			if !yield(bound, sum) {
				return
			}
		}
	}
}

func (d *Durations) add(took time.Duration) {
	d.Count++
	d.Sum += took
	if class, _ := slices.BinarySearch(bounds[:], took); class < len(bounds) {
		d.classes[class]++
	}
}
