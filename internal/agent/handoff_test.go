// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	agenttest "fairlead.io/fairlead/test/agent"
	"fairlead.io/fairlead/test/fake"
)

// A service that other nodes relay to this one stays for a while after it has left, unless it comes
// back meanwhile. Others leave once their routes have.
func TestHandOffRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := startIntake(t)
		services := checkedServices(0, 3)
		services[0].Unannounced, services[1].Unannounced = true, true
		check := func(when string, want ...bool) {
			t.Helper()
			synctest.Wait()
			snapshot := in.store.Snapshot()
			for i, svc := range services {
				if _, found := snapshot.Find(svc.VIP); found != want[i] {
					t.Errorf("%s: service %d is there: %t, want %t", when, i, found, want[i])
				}
			}
		}
		mustTake(t, in, source.Update{Whole: true, Changed: services})
		mustTake(t, in, source.Update{Leaving: []lb.VIP{services[2].VIP}})
		check("announced before", true, true, false)
		mustTake(t, in, source.Update{Leaving: []lb.VIP{services[0].VIP, services[1].VIP}})
		time.Sleep(relayLinger - time.Millisecond)
		synctest.Wait()
		check("before the end", true, true, false)
		mustTake(t, in, source.Update{Changed: services[1:2]})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		check("one has come back", false, true, false)
		in.handoffs.waiting.Wait()
	})
}

func mustTake(t *testing.T, in *intake, u source.Update) {
	t.Helper()
	if err := in.apply(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

// routes is a speaker that accepts all. It records routes that come, get GRACEFUL_SHUTDOWN, and go.
type routes struct{ fake.Record }

func (*routes) Set([]bgp.Route) error                       { return nil }
func (*routes) Configure(context.Context, []bgp.Peer) error { return nil }

func (r *routes) RouteAnnounced(p netip.Prefix, _ string) { r.Add("+%s", p.Addr()) }
func (r *routes) RouteLeaving(p netip.Prefix, _ string)   { r.Add("~%s", p.Addr()) }
func (r *routes) RouteWithdrawn(p netip.Prefix, _ string) { r.Add("-%s", p.Addr()) }

// The route of a service that comes back right after it has left stays.
func TestHandOffCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := agenttest.New(t, observe.Status{})
		agent.Start(t)
		in, r := startIntake(t), &routes{}
		in.store = agent.Store
		in.announcer = announce.New(announce.Config{
			BGP: &bgp.Config{ShutdownDelay: time.Second}, Store: in.store, Speaker: r, Events: r, Log: slog.New(slog.DiscardHandler),
		})
		fake.Run(t, fake.Part(in.announcer.Run))
		in.announcer.Begin()
		services := checkedServices(1, 1)
		services[0].Health = nil
		mustTake(t, in, source.Update{Whole: true, Changed: services})
		synctest.Wait()
		mustTake(t, in, source.Update{Leaving: []lb.VIP{services[0].VIP}})
		mustTake(t, in, source.Update{Changed: services})
		in.handoffs.waiting.Wait()
		synctest.Wait()
		if got := r.Take(); slices.Contains(got, "-10.1.0.1") || !slices.Contains(got, "+10.1.0.1") {
			t.Errorf("routes %v, want that of 10.1.0.1 to stay", got)
		}
	})
}
