// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLock is a lease that takes everything, or nothing.
type fakeLock struct {
	resourcelock.Interface
	err error
	// during is called while a write is under way.
	during func()
}

func (f *fakeLock) Identity() string { return "me" }

func (f *fakeLock) write() error {
	if f.during != nil {
		f.during()
	}
	return f.err
}

func (f *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return f.write() }
func (f *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return f.write() }

// A tenure lasts for its term after the beginning of the last renewal that
// succeeded, and ends at once when the lease is given back.
func TestLeaseTerm(t *testing.T) {
	const term = 10 * time.Second
	now := time.Now()
	lock := &fakeLock{}
	lease := newLeaseGuard(lock, term)
	lease.now = func() time.Time { return now }
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	holds := func(want bool, when string) {
		t.Helper()
		if got := lease.check() == nil; got != want {
			t.Errorf("%s: holds %t, want %t", when, got, want)
		}
	}
	holds(false, "before the first renewal")
	if err := lease.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	now = now.Add(term)
	holds(true, "at the end of the term")
	now = now.Add(1)
	holds(false, "after the term")
	lock.during = func() { now = now.Add(term + 1) } // stopped in the middle of it
	if err := lease.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	holds(false, "after a renewal that took longer than the term")
	lock.during = nil
	if err := lease.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	now = now.Add(term / 2)
	lock.err = errors.New("refused")
	if lease.Update(t.Context(), mine) == nil {
		t.Fatal("no error")
	}
	holds(true, "after a renewal that failed, within the term of the one before")
	if lease.Update(t.Context(), resourcelock.LeaderElectionRecord{}) == nil {
		t.Fatal("no error")
	}
	holds(false, "after the release, whatever came of it")
	if (*leaseGuard)(nil).check() != nil {
		t.Error("without election a tenure ends")
	}
}

// The wall clock counts too: the other one stands still while a machine sleeps.
func TestLeaseTermSuspended(t *testing.T) {
	now := time.Now()
	lease := newLeaseGuard(&fakeLock{}, 10*time.Second)
	lease.now = func() time.Time { return now }
	if err := lease.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	now = now.Round(0).Add(time.Minute)
	if lease.check() == nil {
		t.Error("a tenure lasts while the machine sleeps")
	}
}
