// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"math/rand/v2"
	"time"
)

// Backoff computes how long to wait before the next attempt: longer after each failure.
type Backoff struct {
	// First is the delay after the first failure. It doubles with each failure up to
	// Max.
	First, Max time.Duration
	// Jitter is the part of a delay, above 0 and up to 1, that may be subtracted at
	// random, so that operations that failed together don't retry together.
	Jitter float64
}

// Delay returns how long to wait after that many failures in a row, at least one.
func (b Backoff) Delay(failures int) time.Duration {
	delay := b.Max
	if shift := failures - 1; shift < 16 {
		delay = min(b.First<<shift, b.Max)
	}
	return delay - rand.N(time.Duration(b.Jitter*float64(delay)))
}
