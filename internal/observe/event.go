// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"sync"
	"time"
)

// Event is something that happened: a change of health, of a drain, of a route, of
// the configuration or of the program.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is a word such as "health", "drain", "route", "config" or "program".
	Kind string `json:"kind"`
	// Object is what it happened to, for example "web 10.0.0.21:80".
	Object string `json:"object"`
	// Reason says what happened, and why.
	Reason string `json:"reason"`
}

// maxEvents is how many events are remembered.
const maxEvents = 100

// Events remembers the latest events. Its methods may be called from several
// goroutines; the zero value is empty.
type Events struct {
	mu     sync.Mutex
	latest []Event // the last one is the latest
	count  uint64
}

// Add remembers an event in the place of the oldest one.
func (e *Events) Add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.latest) == maxEvents {
		e.latest = slices.Delete(e.latest, 0, 1)
	}
	e.latest = append(e.latest, event)
	e.count++
}

// Latest returns the events, the latest first, and how many there have been.
func (e *Events) Latest() (events []Event, count uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	events = slices.Clone(e.latest)
	slices.Reverse(events)
	return events, e.count
}
