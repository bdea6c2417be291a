// SPDX-License-Identifier: Apache-2.0

package reconcile

import "time"

// Work is what a reconciler has done since it was made.
type Work struct {
	// Update, Delete and Prune are the calls of the data plane.
	Update, Delete, Prune Calls
	// Delay is the time from a change of a service until the data plane had it,
	// retries included. Changes that were overtaken by others don't count.
	Delay Durations
}

// Calls of one of the data plane's methods.
type Calls struct {
	// Took has each call that returned.
	Took Durations
	// Failures counts those that returned an error.
	Failures uint64
}

// Work returns what has been done up to now.
func (r *Reconciler) Work() Work {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.work
}

// Calling is since when the data plane has been working on one call; zero while
// it is not. A time long ago means that it hangs.
func (r *Reconciler) Calling() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calling
}

// call lets the data plane do something, and counts it.
func (r *Reconciler) call(calls *Calls, do func() error) (time.Duration, error) {
	start := time.Now()
	r.setCalling(start)
	err := do()
	took := time.Since(start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calling = time.Time{}
	calls.Took.add(took)
	if err != nil {
		calls.Failures++
	}
	return took, err
}

func (r *Reconciler) setCalling(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calling = since
}
