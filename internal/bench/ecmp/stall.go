// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"sync"
	"time"
)

// stallTick is how often a stall watch wants to wake up.
const stallTick = 5 * time.Millisecond

// stallWatch finds out for how long a process that has something to do may be kept
// waiting for a processor. Agents, and the routers' daemons, wait as long: from
// BFD's detection time on they are taken for lost.
type stallWatch struct {
	quit chan struct{}
	done sync.WaitGroup
	// longest is that of all waits, once the watch is over.
	longest time.Duration
}

func watchStalls() *stallWatch {
	w := &stallWatch{quit: make(chan struct{})}
	w.done.Go(func() {
		for last := time.Now(); ; {
			select {
			case <-time.After(stallTick):
			case <-w.quit:
				return
			}
			now := time.Now()
			w.longest = max(w.longest, now.Sub(last)-stallTick)
			last = now
		}
	})
	return w
}

// stop ends the watch and returns the longest stall.
func (w *stallWatch) stop() time.Duration {
	close(w.quit)
	w.done.Wait()
	return w.longest
}
