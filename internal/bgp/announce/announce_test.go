// SPDX-License-Identifier: Apache-2.0

package announce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fake"
)

// node is an Announcer with a store and a reconciler on the fake data plane.
type node struct {
	*announce.Announcer
	store  *store.Store
	dp     *dataplanetest.Fake
	config bgp.Config

	calls  fake.Record           // of the speaker and the recorder since the last check
	refuse atomic.Pointer[error] // the speaker's
}

func (n *node) speak(format string, args ...any) error {
	n.calls.Add(format, args...)
	if err := n.refuse.Load(); err != nil {
		return *err
	}
	return nil
}

// The node is its Announcer's speaker and recorder.
func (n *node) Set(routes []bgp.Route) error {
	texts := make([]string, len(routes))
	for i, r := range routes {
		texts[i] = r.Prefix.Addr().String()
		if r.GracefulShutdown {
			texts[i] += " leaving"
		}
	}
	return n.speak("set [%s]", strings.Join(texts, ", "))
}

func (n *node) Configure(_ context.Context, peers []bgp.Peer) error {
	return n.speak("peers %d", len(peers))
}

func (n *node) RouteAnnounced(p netip.Prefix, why string) { n.calls.Add("+%s %s", p.Addr(), why) }
func (n *node) RouteLeaving(p netip.Prefix, why string)   { n.calls.Add("~%s %s", p.Addr(), why) }
func (n *node) RouteWithdrawn(p netip.Prefix, why string) { n.calls.Add("-%s %s", p.Addr(), why) }

// want compares the calls since the last time.
func (n *node) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := n.calls.Take(); !slices.Equal(got, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func service(name, vip string) lb.Service { return fake.Checked(name, fake.VIP(vip), "10.0.0.1") }

func (n *node) set(t *testing.T, services ...lb.Service) {
	t.Helper()
	if _, err := n.store.Set(services); err != nil {
		t.Fatal(err)
	}
}

func (n *node) evaluate(svc lb.Service, healthy bool) {
	n.store.ApplyVerdicts([]health.Verdict{{VIP: svc.VIP, Backend: svc.Backends[0].ID(), State: health.State{Checked: true, Known: true, Healthy: healthy, Share: lb.WholeShare}}})
}

// start runs a node until the test ends, in a bubble.
func start(t *testing.T) *node {
	n := &node{store: store.New(), dp: dataplanetest.NewFake(), config: bgp.Config{
		Peers: make([]bgp.Peer, 2), ShutdownDelay: time.Second,
	}}
	log := slog.New(slog.DiscardHandler)
	reconciler := reconcile.New(n.dp, n.store, log)
	n.Announcer = announce.New(announce.Config{
		BGP: &n.config, Store: n.store, Speaker: n, Events: n, Log: log,
	})
	t.Cleanup(func() {
		if err := n.dp.Close(); err != nil {
			t.Error(err)
		}
	})
	fake.Run(t, fake.Part(reconciler.Run), fake.Part(n.Run))
	n.want(t, "peers 2") // sessions wait for routes
	return n
}

var web, dns = service("web", "10.1.1.1"), service("dns", "10.1.1.2")

// withNode runs a test of a node that announces web and dns, in a bubble.
func withNode(t *testing.T, test func(t *testing.T, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		n.set(t, web, dns)
		n.want(t)
		n.Begin()
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web", "+10.1.1.2 served for dns")
		test(t, n)
	})
}

// Nothing is said before the data plane works, and sessions begin with all
// routes: those that will be there in a moment are waited for.
func TestInitialRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		n.dp.SetUnusable(web.Backends[0].ID(), "no neighbour")
		n.set(t, web)
		n.want(t)
		n.Begin()
		n.want(t)
		time.Sleep(500 * time.Millisecond)
		n.dp.SetUnusable(web.Backends[0].ID(), "")
		n.dp.MarkStale(web.VIP)
		n.want(t, "set [10.1.1.1]", "+10.1.1.1 served for web")
		time.Sleep(time.Minute)
		n.want(t)
	})
	synctest.Test(t, func(t *testing.T) { // but not for ever
		n := start(t)
		n.set(t, web, dns)
		n.evaluate(web, false)
		n.want(t)
		n.Begin()
		time.Sleep(999 * time.Millisecond)
		n.want(t, "+10.1.1.2 served for dns")
		time.Sleep(time.Millisecond)
		n.want(t, "set [10.1.1.2]")
		n.evaluate(web, true)
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web")
	})
	synctest.Test(t, func(t *testing.T) { // nor for a route that shouldn't be announced
		n := start(t)
		n.store.Drain(store.Drain{Target: store.Target{Service: "dns"}})
		n.set(t, web, dns)
		n.want(t)
		n.Begin()
		n.want(t, "set [10.1.1.1]", "+10.1.1.1 served for web")
	})
}

// No route is announced while an interface is without the program.
func TestMissingInterface(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.SetMissing(errors.Join(errors.New("interface eth1: gone"), errors.New("interface eth2: gone")))
		const reason = "interface eth1: gone; interface eth2: gone"
		n.want(t, "set []", "-10.1.1.1 "+reason, "-10.1.1.2 "+reason)
		time.Sleep(time.Minute)
		n.want(t)
		n.SetMissing(nil)
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web", "+10.1.1.2 served for dns")
	})
}

// A route follows the data plane's state, not the desired one; a loss doesn't wait
// for the data plane.
func TestRoutesFollowDataPlane(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		var mended atomic.Bool
		n.dp.Fail = func(_ string, vip lb.VIP) error {
			if vip.Address == web.VIP.Address || mended.Load() {
				return nil
			}
			return errors.New("no room")
		}
		third := service("new", "10.1.1.3")
		n.set(t, web, dns, third)
		n.want(t)
		if d := n.Decisions()[2]; d.Reason != "new: not programmed: vip tcp 10.1.1.3:80: no room" {
			t.Errorf("reason %q", d.Reason)
		}
		n.evaluate(dns, false)
		n.want(t, "set [10.1.1.1]", "-10.1.1.2 dns: 0 of 1 backends healthy, 1 wanted")
		mended.Store(true)
		time.Sleep(time.Minute) // retries
		n.want(t, "set [10.1.1.1, 10.1.1.3]", "+10.1.1.3 served for new")
		n.set(t, web)
		n.want(t, "set [10.1.1.1]", "-10.1.1.3 no service left")
		n.dp.SetUnusable(web.Backends[0].ID(), "no neighbour")
		n.dp.MarkStale(web.VIP)
		n.want(t, "set []", "-10.1.1.1 web: 0 of 1 backends in use, 1 wanted (10.0.0.1:80: no neighbour)")
	})
}

// The plan changes with time: GRACEFUL_SHUTDOWN ends with a withdrawal, and damping ends.
func TestTimedWithdrawal(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.store.Drain(store.Drain{})
		n.want(t, "set [10.1.1.1 leaving, 10.1.1.2 leaving]", "~10.1.1.1 node drained", "~10.1.1.2 node drained")
		time.Sleep(999 * time.Millisecond)
		n.want(t)
		time.Sleep(time.Millisecond)
		n.want(t, "set []", "-10.1.1.1 node drained", "-10.1.1.2 node drained")
		n.store.Undrain(store.Target{})
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web", "+10.1.1.2 served for dns")
		n.store.Drain(store.Drain{})
		n.store.Undrain(store.Target{})
		n.want(t)
		for range 3 {
			for _, healthy := range []bool{false, true} {
				n.evaluate(web, healthy)
				synctest.Wait()
			}
		}
		n.calls.Take()
		d := n.Decisions()[0]
		if d.Announced || d.Damped.IsZero() {
			t.Fatalf("%+v is not damped", d)
		}
		time.Sleep(time.Until(d.Damped))
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web")
	})
}

// A service that the node has for other nodes from now on is moved away, with the attributes of its
// route; one that can't be served isn't.
func TestUnannouncedService(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		med := uint32(7)
		config := n.config
		config.Policies = []bgp.Policy{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, Attributes: bgp.Attributes{MED: &med}}}
		n.Announcer.Configure(&config)
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "peers 2")
		others := web
		others.Unannounced = true
		n.set(t, others, dns)
		n.want(t, "set [10.1.1.1 leaving, 10.1.1.2]", "~10.1.1.1 web: served for other nodes")
		if d := n.Decisions()[0]; d.Route.Attributes.MED != &med {
			t.Errorf("the route that leaves is %+v, want it with its MED", d.Route)
		}
		time.Sleep(time.Second)
		n.want(t, "set [10.1.1.2]", "-10.1.1.1 web: served for other nodes")
		n.set(t, web, dns)
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web")
		n.evaluate(web, false)
		n.want(t, "set [10.1.1.2]", "-10.1.1.1 web: 0 of 1 backends healthy, 1 wanted")
		n.set(t, others, dns)
		n.want(t)
	})
}

func TestStop(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		began := time.Now()
		n.store.Drain(store.Drain{})
		if err := n.Stop(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("stopped after %s (%v), want a second", time.Since(began), err)
		}
		n.want(t, "set [10.1.1.1 leaving, 10.1.1.2 leaving]", "~10.1.1.1 the agent stops", "~10.1.1.2 the agent stops",
			"set []", "-10.1.1.1 the agent stops", "-10.1.1.2 the agent stops")
		n.store.Undrain(store.Target{}) // too late
		n.want(t)
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	withNode(t, func(t *testing.T, n *node) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := n.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// A service that will be drained is moved away while it is served.
func TestDrain(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		began := time.Now()
		done, err := n.Drain(t.Context(), "web")
		if err != nil || time.Since(began) != 2*time.Second {
			t.Fatalf("moved after %s (%v), want two seconds", time.Since(began), err)
		}
		n.want(t, "set [10.1.1.1 leaving, 10.1.1.2]", "~10.1.1.1 web: drained", "set [10.1.1.2]", "-10.1.1.1 web: drained")
		n.store.Drain(store.Drain{Target: store.Target{Service: "web"}})
		done()
		n.want(t)

		began = time.Now() // a route that isn't announced needs no time
		for _, name := range []string{"web", "nosuch"} {
			if done, err := n.Drain(t.Context(), name); err != nil || !time.Now().Equal(began) {
				t.Errorf("%s: error %v after %s", name, err, time.Since(began))
			} else {
				done()
			}
		}
		n.store.Undrain(store.Target{Service: "web"})
		n.want(t, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web")
	})
}

// The route is back at once when a drain is cancelled.
func TestDrainCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(n *node, cancel func())
		want string
	}{
		"cancelled": {func(_ *node, cancel func()) { cancel() }, "context canceled"},
		"undrained": {func(n *node, _ func()) { n.CancelDrain("web") }, "service web: undrained meanwhile"},
	} {
		for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s after %s", name, after), func(t *testing.T) {
				withNode(t, func(t *testing.T, n *node) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(after, func() { test.end(n, cancel) })
					if _, err := n.Drain(ctx, "web"); err == nil || err.Error() != test.want {
						t.Errorf("error %v, want %s", err, test.want)
					}
					want := []string{"set [10.1.1.1 leaving, 10.1.1.2]", "~10.1.1.1 web: drained"}
					if after > time.Second {
						want = append(want, "set [10.1.1.2]", "-10.1.1.1 web: drained")
					}
					n.want(t, append(want, "set [10.1.1.1, 10.1.1.2]", "+10.1.1.1 served for web")...)
				})
			})
		}
	}
}

// Peers and policies change while the agent runs.
func TestConfigure(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.Announcer.Configure(&bgp.Config{Peers: make([]bgp.Peer, 3), Policies: []bgp.Policy{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, Aggregate: true}}})
		n.want(t, "set [10.1.1.0]", "peers 3", "+10.1.1.0 served for dns, web", "-10.1.1.1 no service left", "-10.1.1.2 no service left")
		if err := n.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		n.want(t)
	})
}

// A speaker that refuses is asked again.
func TestSpeakerError(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.refuse.Store(new(errors.New("no")))
		n.evaluate(web, false)
		stopped := make(chan error, 1)
		go func() { stopped <- n.Stop(t.Context()) }()
		time.Sleep(2 * n.config.ShutdownDelay) // it tries at once, and again
		synctest.Wait()
		if len(stopped) > 0 || !n.Decisions()[0].Announced {
			t.Error("routes count as withdrawn that the speaker still has")
		}
		n.refuse.Store(nil)
		n.calls.Take()
		time.Sleep(time.Second)
		n.want(t, "set []", "-10.1.1.1 the agent stops", "-10.1.1.2 the agent stops")
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		n.want(t)
	})
}
