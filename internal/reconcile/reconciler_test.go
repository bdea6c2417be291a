// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fake"
)

// testReconciler is a reconciler between a store and the fake data plane.
type testReconciler struct {
	*reconcile.Reconciler
	t     *testing.T
	store *store.Store
	dp    *dataplanetest.Fake
	log   fake.Log

	mu sync.Mutex
	// faults are the calls that fail.
	faults map[fault]error
}

type fault struct {
	op  string
	vip lb.VIP
}

// withReconciler runs a test of a reconciler in a bubble.
func withReconciler(t *testing.T, test func(t *testing.T, r *testReconciler)) {
	synctest.Test(t, func(t *testing.T) {
		r := &testReconciler{t: t, store: store.New(), dp: dataplanetest.NewFake(), faults: map[fault]error{}}
		r.dp.Fail = func(op string, vip lb.VIP) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.faults[fault{op, vip}]
		}
		t.Cleanup(func() {
			if err := r.dp.Close(); err != nil {
				t.Error(err)
			}
		})
		r.Reconciler = reconcile.New(r.dp, r.store, r.log.Logger("took"))
		test(t, r)
	})
}

// fail makes calls fail with an error, or no longer if it is nil.
func (r *testReconciler) fail(op string, vip lb.VIP, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[fault{op, vip}] = err
}

// start runs the reconciler until the test ends.
func (r *testReconciler) start() {
	fake.Run(r.t, fake.Part(r.Run))
	synctest.Wait()
}

// set desires services and waits until the reconciler sleeps.
func (r *testReconciler) set(services []lb.Service) store.Snapshot {
	r.t.Helper()
	snapshot, err := r.store.Set(services)
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return snapshot
}

// status is the status of the nth service.
func (r *testReconciler) status(n int) store.Status { return r.store.Snapshot().Statuses()[n] }

const serviceCount = 6

// vip is the VIP of the nth service.
func vip(n byte) lb.VIP { return fake.VIP(fmt.Sprint("10.1.1.", n)) }

// services returns n services "a", "b" … of one backend each.
func services(n byte) []lb.Service {
	var all []lb.Service
	for i := range n {
		all = append(all, fake.Service(string(rune('a'+i)), vip(i), vip(i).Address.String()))
	}
	return all
}
