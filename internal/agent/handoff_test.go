// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// A service that other nodes relay to this one stays for a while after it has left, unless it comes
// back meanwhile. Others leave once their routes have.
func TestHandOffOfRelayedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := startIntake(t)
		services := checkedServices(0, 3)
		services[0].Unannounced, services[1].Unannounced = true, true
		take := func(u source.Update) {
			t.Helper()
			if err := in.take(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		check := func(when string, want ...bool) {
			t.Helper()
			snapshot := in.store.Snapshot()
			for i, svc := range services {
				if _, found := snapshot.Find(svc.VIP); found != want[i] {
					t.Errorf("%s: service %d is there: %t, want %t", when, i, found, want[i])
				}
			}
		}
		take(source.Update{Whole: true, Changed: services})
		take(source.Update{Leaving: []lb.VIP{services[2].VIP}})
		check("announced before", true, true, false)
		take(source.Update{Leaving: []lb.VIP{services[0].VIP, services[1].VIP}})
		time.Sleep(relayLinger - time.Millisecond)
		synctest.Wait()
		check("before the end", true, true, false)
		take(source.Update{Changed: services[1:2]})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		check("one has come back", false, true, false)
		in.handoffs.waiting.Wait()
	})
}
