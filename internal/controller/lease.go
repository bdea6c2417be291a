// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errLeaseExpired ends operations that began while this process was the leader.
var errLeaseExpired = errors.New("lease not renewed in time, another controller may be the leader")

// leaseGuard is a lock that records its last renewal, so that writers notice its expiry
// even if the goroutine of the elector is stalled. A nil leaseGuard never expires: there
// is no leader election.
type leaseGuard struct {
	resourcelock.Interface
	// validFor is how long after a renewal no other controller becomes the leader.
	validFor time.Duration
	now      func() time.Time

	mu sync.Mutex
	// renewed is the start of the last successful renewal; zero if not held.
	renewed time.Time
}

func newLeaseGuard(lock resourcelock.Interface, term time.Duration) *leaseGuard {
	return &leaseGuard{Interface: lock, validFor: term, now: time.Now}
}

// Create creates and acquires the Lease.
func (t *leaseGuard) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.track(record, func() error { return t.Interface.Create(ctx, record) })
}

// Update acquires, renews or releases the Lease.
func (t *leaseGuard) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.track(record, func() error { return t.Interface.Update(ctx, record) })
}

func (t *leaseGuard) track(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := t.now()
	if record.HolderIdentity != t.Identity() {
		t.set(time.Time{}) // even if the release fails
		return write()
	}
	err := write()
	if err == nil {
		t.set(began)
	}
	return err
}

func (t *leaseGuard) set(renewed time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = renewed
}

// check returns errLeaseExpired if another controller may be the leader by now.
func (t *leaseGuard) check() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The monotonic clock stops while a machine sleeps, the wall clock (Round strips the
	// monotonic reading) doesn't. Both have to be within validFor.
	if now := t.now(); t.renewed.IsZero() || now.Sub(t.renewed) > t.validFor || now.Round(0).Sub(t.renewed.Round(0)) > t.validFor {
		return errLeaseExpired
	}
	return nil
}
