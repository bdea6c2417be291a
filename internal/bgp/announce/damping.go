// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"math"
	"time"
)

// Damping, in the spirit of RFC 2439 but with other figures: what it calls a
// penalty of 1000 is 1 here, and as nobody else damps this prefix, seconds do
// what it needs minutes for. A prefix that is lost more seldom than once in a
// half-life never comes to suppressAbove, as 1 + 1/2 + 1/4 + … stays below it.
const (
	halfLife      = 10 * time.Second
	suppressAbove = 2
	reuseAt       = 1
	// mostPenalty bounds the time that a prefix is held back after its last loss to
	// three half-lives.
	mostPenalty = 8
)

// damper remembers how often a prefix was lost of late. The zero value was never
// lost.
type damper struct {
	penalty float64 // at the time at
	at      time.Time
	held    bool
}

// lost counts a loss.
func (d *damper) lost(now time.Time) {
	decayed := d.penalty * math.Exp2(-float64(now.Sub(d.at))/float64(halfLife))
	d.penalty, d.at = min(decayed+1, mostPenalty), now
	d.held = d.penalty > suppressAbove
}

// until is when a prefix that is held back may be announced again; zero if it may
// be now.
func (d *damper) until(now time.Time) time.Time {
	if !d.held {
		return time.Time{}
	}
	free := d.at.Add(time.Duration(math.Log2(d.penalty/reuseAt) * float64(halfLife)))
	if !free.After(now) {
		d.held = false
		return time.Time{}
	}
	return free
}
