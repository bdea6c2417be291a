// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"math/rand/v2"
	"time"
)

// The bounds of the time between two tries, and how long a session has to live for
// the next one to be tried at once again: so a peer that flaps is not hammered.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	lasting  = 10 * time.Second
)

// Backoff says how long to wait before the next try. The zero value begins.
type Backoff struct {
	pause time.Duration
}

// Next doubles the pause, and takes up to a quarter off it so that balancers that
// lost a router together don't come back together. A session that lived long
// starts it over.
func (b *Backoff) Next(lived time.Duration) time.Duration {
	b.pause = min(max(minPause, 2*b.pause), maxPause)
	if lived >= lasting {
		b.pause = minPause
	}
	return b.pause - rand.N(b.pause/4)
}
