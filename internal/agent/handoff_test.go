// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/test/observed"
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

// routes is a speaker that accepts all. It records routes that come, get GRACEFUL_SHUTDOWN, and go.
type routes struct {
	mu       sync.Mutex
	recorded []string
}

func (*routes) Set([]bgp.Route) error                       { return nil }
func (*routes) Configure(context.Context, []bgp.Peer) error { return nil }

func (r *routes) record(what string, p netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = append(r.recorded, what+p.Addr().String())
}

func (r *routes) RouteAnnounced(p netip.Prefix, _ string) { r.record("+", p) }
func (r *routes) RouteLeaving(p netip.Prefix, _ string)   { r.record("~", p) }
func (r *routes) RouteWithdrawn(p netip.Prefix, _ string) { r.record("-", p) }

// The route of a service that comes back right after it has left stays.
func TestHandOffThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := observed.New(t, observe.Status{})
		agent.Start(t)
		in, r := startIntake(t), &routes{}
		in.store = agent.Store
		in.announcer = announce.New(announce.Config{
			BGP: &bgp.Config{ShutdownDelay: time.Second}, Store: in.store, Speaker: r, Events: r, Log: slog.New(slog.DiscardHandler),
		})
		observed.Run(t, observed.Part(in.announcer.Run))
		in.announcer.Begin()
		take := func(u source.Update) {
			t.Helper()
			if err := in.take(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
		services := checkedServices(1, 1)
		services[0].Health = nil
		take(source.Update{Whole: true, Changed: services})
		synctest.Wait()
		take(source.Update{Leaving: []lb.VIP{services[0].VIP}})
		take(source.Update{Changed: services})
		in.handoffs.waiting.Wait()
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if slices.Contains(r.recorded, "-10.1.0.1") || !slices.Contains(r.recorded, "+10.1.0.1") {
			t.Errorf("routes %v, want that of 10.1.0.1 to stay", r.recorded)
		}
	})
}
