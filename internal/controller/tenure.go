// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errNotLeader ends what was begun while this process was the leader.
var errNotLeader = errors.New("lease was not renewed in time: somebody else may be the leader")

// tenure is a lease that remembers when it was last renewed, so that whoever is about
// to write learns of its end also where the elector's own clock stands still: in a
// process that was stopped, or starved. A nil tenure never ends: there is no election.
type tenure struct {
	resourcelock.Interface
	// term is for how long after a renewal nobody else begins.
	term time.Duration
	now  func() time.Time

	mu sync.Mutex
	// renewed is when the last successful renewal began; zero: not ours.
	renewed time.Time
}

func newTenure(lock resourcelock.Interface, term time.Duration) *tenure {
	return &tenure{Interface: lock, term: term, now: time.Now}
}

// Create acquires a lease that there isn't yet.
func (t *tenure) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(record, func() error { return t.Interface.Create(ctx, record) })
}

// Update acquires, renews or releases the lease.
func (t *tenure) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(record, func() error { return t.Interface.Update(ctx, record) })
}

func (t *tenure) note(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := t.now()
	if record.HolderIdentity != t.Identity() {
		t.set(time.Time{}) // from now on, whether or not the release succeeds
		return write()
	}
	err := write()
	if err == nil {
		t.set(began)
	}
	return err
}

func (t *tenure) set(renewed time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = renewed
}

// check returns errNotLeader if somebody else may be the leader by now.
func (t *tenure) check() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Round strips the monotonic reading: that clock stands still while a machine
	// sleeps, the wall clock doesn't. Either has to be within the term.
	if now := t.now(); t.renewed.IsZero() || now.Sub(t.renewed) > t.term || now.Round(0).Sub(t.renewed.Round(0)) > t.term {
		return errNotLeader
	}
	return nil
}
