// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math/rand/v2"
	"time"
)

// The pause before the first retry, and the longest one. The first is short
// because most failures are races with a network that is being set up; the last
// bounds how long a healed service waits.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// pause returns how long to wait after so many failures in a row: it doubles
// from firstPause to longestPause. Up to a half is taken off at random, so that
// services, and nodes, that failed together don't retry together.
func pause(failures int) time.Duration {
	full := longestPause
	if shift := failures - 1; shift < 16 {
		full = min(firstPause<<shift, longestPause)
	}
	return full - rand.N(full/2)
}
