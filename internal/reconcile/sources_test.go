// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// allowed returns service 0 for clients of some prefixes; nil for all.
func allowed(prefixes ...string) []lb.Service {
	all := services(1)
	for _, p := range prefixes {
		all[0].Sources.Allow = append(all[0].Sources.Allow, netip.MustParsePrefix(p))
	}
	return all
}

// admitted returns the clients whose packets service 0 takes.
func (r *testReconciler) admitted() string {
	var in []string
	for _, client := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"} {
		if _, is := r.dp.Probe(vip(0), netip.AddrPortFrom(netip.MustParseAddr(client), 4711)); is {
			in = append(in, client)
		}
	}
	return strings.Join(in, " ")
}

// A service whose sources become fewer and can't be updated is taken out, and comes back with
// the new ones. One whose present sources are all allowed stays.
func TestTightenedSources(t *testing.T) {
	const office, home = "192.0.2.0/24", "198.51.100.0/24"
	for name, test := range map[string]struct {
		before, after []lb.Service
		// earlier says that an earlier process programmed the service.
		earlier bool
		// full are the clients that are let in while there is no room, healed afterwards.
		full, healed string
	}{
		"first list":        {allowed(), allowed(office), false, "", "192.0.2.1"},
		"fewer":             {allowed(office, home), allowed(office), false, "", "192.0.2.1"},
		"others":            {allowed(office), allowed(home), false, "", "198.51.100.1"},
		"unknown":           {allowed(), allowed(office), true, "", "192.0.2.1"},
		"more":              {allowed(office), allowed(office, home), false, "192.0.2.1", "192.0.2.1 198.51.100.1"},
		"all":               {allowed(office), allowed(), false, "192.0.2.1", "192.0.2.1 198.51.100.1 203.0.113.1"},
		"the same":          {allowed(office), allowed(office), false, "192.0.2.1", "192.0.2.1"},
		"unknown, unlisted": {allowed(office), allowed(), true, "192.0.2.1", "192.0.2.1 198.51.100.1 203.0.113.1"},
	} {
		t.Run(name, func(t *testing.T) {
			withReconciler(t, func(t *testing.T, r *testReconciler) {
				if test.earlier {
					if _, err := r.dp.Update(t.Context(), &test.before[0]); err != nil {
						t.Fatal(err)
					}
				} else {
					r.start()
					r.set(test.before)
				}
				test.after[0].IdleTimeout = time.Minute // differs in any case
				r.fail("update", vip(0), errors.New("table sources is full"))
				r.set(test.after)
				if test.earlier {
					r.start()
				}
				if got := r.admitted(); got != test.full {
					t.Errorf("without room: admits %q, want %q", got, test.full)
				}
				status := r.status(0)
				if status.Error == "" || (status.Programmed != 0) != (test.full != "" && !test.earlier) {
					t.Errorf("status %+v", status)
				}
				r.fail("update", vip(0), nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := r.admitted(); got != test.healed {
					t.Errorf("with room again: admits %q, want %q", got, test.healed)
				}
			})
		})
	}
}

// The oldest services get free capacity first, whatever their addresses are.
func TestOldestFirst(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		const room = 2
		all := services(4)
		for i := range all {
			all[i].Created = int64(100 - i)
		}
		served := map[lb.VIP]bool{}
		r.dp.Fail = func(op string, vip lb.VIP) error {
			if op == "update" && !served[vip] && len(served) == room {
				return errors.New("no room")
			}
			if op == "update" {
				served[vip] = true
			}
			return nil
		}
		r.set(all)
		r.start()
		if !served[vip(3)] || !served[vip(2)] {
			t.Errorf("served: %v, want those of the oldest", served)
		}
	})
}
