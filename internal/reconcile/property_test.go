// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fake"
	"fairlead.io/fairlead/test/fuzzrand"
)

// Whatever was desired in between, and though one call in ten fails, in the end the
// data plane has the last desired services and no others.
func TestConvergence(t *testing.T) {
	const histories = 200
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withReconciler(t, func(t *testing.T, r *testReconciler) { converge(t, r, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

// steps are the changes of a history.
const steps = 20

func converge(t *testing.T, r *testReconciler, random *rand.Rand) {
	calls := rand.New(rand.NewPCG(random.Uint64(), 1)) // of the reconciler's goroutine
	r.dp.Fail = func(string, lb.VIP) error {
		if calls.IntN(10) == 0 {
			return errors.New("one in ten")
		}
		return nil
	}
	desired := randomServices(random)
	for _, svc := range randomServices(random) { // of an earlier process
		if _, err := r.dp.Update(t.Context(), &svc); err != nil {
			t.Log("not left behind:", err)
		}
	}
	r.start()
	for range steps {
		switch random.IntN(4) {
		case 0, 1:
			desired = randomServices(random)
			if _, err := r.store.Set(desired); err != nil {
				t.Fatal(err)
			}
		case 2:
			id := randomBackend(random).ID()
			r.dp.SetUnusable(id, []string{"", "no route"}[random.IntN(2)])
			for n := range byte(serviceCount) {
				r.dp.MarkStale(vip(n))
			}
		case 3:
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		}
	}
	r.set(desired)
	time.Sleep(10 * time.Minute)
	synctest.Wait()

	got := r.dp.Dump()
	r.dp.Calls()
	if want := direct(t, r.dp, desired); got != want {
		t.Errorf("the data plane has\n%s\nwant\n%s", got, want)
	}
	statuses := r.store.Snapshot().Statuses()
	if len(statuses) != len(desired) {
		t.Errorf("%d statuses, want %d", len(statuses), len(desired))
	}
	for i, entry := range r.store.Snapshot().Services {
		s := statuses[i]
		if s.VIP != entry.Service.VIP || s.Programmed != entry.Revision || s.Error != "" || s.Deleting {
			t.Errorf("status %+v, want %s programmed at revision %d", s, entry.Service.VIP, entry.Revision)
		}
	}
}

// direct returns the dump of dp after all is removed and programmed afresh.
func direct(t *testing.T, dp *dataplanetest.Fake, services []lb.Service) string {
	persist := func(try func() error) {
		for try() != nil {
			continue
		}
	}
	persist(func() error { return dp.Prune(t.Context(), nil) })
	for _, svc := range services {
		persist(func() error {
			_, err := dp.Update(t.Context(), &svc)
			return err
		})
	}
	return dp.Dump()
}

func randomBackend(random *rand.Rand) lb.Backend {
	return lb.Backend{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(8))}), Port: 80, Weight: random.IntN(4)}
}

// randomServices returns a random part of serviceCount services with random
// backends.
func randomServices(random *rand.Rand) []lb.Service {
	var all []lb.Service
	for n := range byte(serviceCount) {
		if random.IntN(3) == 0 {
			continue
		}
		svc := fake.Service(fmt.Sprint("s", n), vip(n))
		for range random.IntN(5) {
			b := randomBackend(random)
			if !slices.ContainsFunc(svc.Backends, func(o lb.Backend) bool { return o.ID() == b.ID() }) {
				svc.Backends = append(svc.Backends, b)
			}
		}
		all = append(all, svc)
	}
	return all
}
