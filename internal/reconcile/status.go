// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Status is how far one service has come.
type Status struct {
	VIP  lb.VIP `json:"vip"`
	Name string `json:"name"`
	// Desired is the store's revision of the service, 0 while it is deleted.
	Desired uint64 `json:"desired"`
	// Programmed is the revision that the data plane has, 0 if none that this
	// process programmed. It stays at the last one while a newer one fails.
	Programmed uint64 `json:"programmed"`
	// Deleting says that the service is no longer desired but not yet gone.
	Deleting bool `json:"deleting,omitempty"`
	// Error is why the last try failed; empty if it did not.
	Error string `json:"error,omitempty"`
	// Attempts counts the failed tries in a row.
	Attempts int `json:"attempts,omitempty"`
	// NextTry is when a failed service is tried again.
	NextTry time.Time `json:"nextTry,omitzero"`
	// State is what the last successful update made; see Programmed.
	State dataplane.Programmed `json:"state"`
	// Took is the time of the last call of the data plane.
	Took time.Duration `json:"took"`
}

// succeeded records an update.
func (s *Status) succeeded(state dataplane.Programmed, took time.Duration) {
	s.Programmed, s.State, s.Took = s.Desired, state, took
	s.Error, s.Attempts, s.NextTry = "", 0, time.Time{}
}

// failed records a failure and plans the next try.
func (s *Status) failed(err error, took time.Duration) {
	s.Error, s.Took = err.Error(), took
	s.Attempts++
	s.NextTry = time.Now().Add(pause(s.Attempts))
}

// Statuses returns the status of every service that is desired or being
// deleted, by VIP. The caller must not change what the State fields point to.
func (r *Reconciler) Statuses() []Status {
	statuses, _ := r.Watch()
	return statuses
}

// Watch returns the statuses and a channel that is closed when one of them says
// something else of what the data plane has. A watcher calls Watch again then;
// however late it comes, it gets the newest.
func (r *Reconciler) Watch() ([]Status, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Status, 0, len(r.targets))
	for _, t := range r.targets {
		all = append(all, t.status)
	}
	slices.SortFunc(all, func(a, b Status) int { return a.VIP.Compare(b.VIP) })
	return all, r.changed
}

// note tells those who watch that a status is another. The caller holds mu.
func (r *Reconciler) note() {
	close(r.changed)
	r.changed = make(chan struct{})
}
