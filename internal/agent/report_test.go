// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/internal/store"
	agenttest "fairlead.io/fairlead/test/agent"
	"fairlead.io/fairlead/test/fake"
)

// sent is a report, and when it was sent.
type sent struct {
	at     time.Duration
	status v1alpha1.BalancerNodeStatus
}

// reporting runs a reporter on an agent in a bubble's time, and returns a function that lists the
// reports so far.
func reporting(t *testing.T, agent *agenttest.Agent, routes func() v1alpha1.BalancerNodeStatus, answer func(n int) error) func() []sent {
	began := time.Now()
	var mu sync.Mutex
	var all []sent
	r := reporter{
		store: agent.Store, routes: routes, describe: agent.Describe, traffic: &traffic{read: agent.DP.Stats}, log: slog.New(slog.DiscardHandler),
		send: func(_ context.Context, status *v1alpha1.BalancerNodeStatus) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, sent{time.Since(began), *status})
			return answer(len(all))
		},
	}
	fake.Run(t, fake.Part(r.run))
	return func() []sent {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// withAgent runs a test of an agent in a bubble.
func withAgent(t *testing.T, test func(t *testing.T, agent *agenttest.Agent)) {
	synctest.Test(t, func(t *testing.T) {
		agent := agenttest.New(t, observe.Status{Version: "1.2.3", DataPlane: observe.DataPlane{Kind: "xdp"}})
		agent.Start(t)
		test(t, agent)
	})
}

func accepted(int) error { return nil }

func noRoutes() v1alpha1.BalancerNodeStatus { return v1alpha1.BalancerNodeStatus{} }

// A report counts leaving routes as announced, as packets still come, and apart, as routers prefer others.
func TestReportedRoutes(t *testing.T) {
	route := func(n byte, announced, leaving bool) announce.Decision {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32)
		d := announce.Decision{Prefix: prefix, Announced: announced, Reason: "web: served for other nodes"}
		d.Route.GracefulShutdown = leaving
		return d
	}
	var r v1alpha1.BalancerNodeStatus
	addRoutes(&r, []announce.Decision{route(1, true, false), route(2, true, true), route(3, false, false), route(4, true, false)})
	if want := (v1alpha1.RouteCounts{Announced: 3, Leaving: 1, Withheld: 1}); r.Routes != want {
		t.Errorf("the report counts %+v, want %+v", r.Routes, want)
	}
	if want := []v1alpha1.WithheldRoute{{Prefix: "192.0.2.3/32", Message: "web: served for other nodes"}}; !slices.Equal(r.Withheld, want) {
		t.Errorf("the report lists %v, want %v", r.Withheld, want)
	}
}

// A report has counts of services and backends, lists failed and unhealthy ones, and follows a
// change within a second.
func TestReport(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		var full atomic.Bool
		agent.DP.Fail = func(op string, _ lb.VIP) error {
			if op == "update" && full.Load() {
				return errors.New("table is full")
			}
			return nil
		}
		services := checkedServices(0, 3)
		agent.Set(t, services...)
		var sessions atomic.Int32
		var draining atomic.Bool
		reports := reporting(t, agent, func() v1alpha1.BalancerNodeStatus {
			return v1alpha1.BalancerNodeStatus{Routes: v1alpha1.RouteCounts{Sessions: sessions.Load()}, Draining: draining.Load()}
		}, accepted)
		time.Sleep(time.Second)
		if got := reports(); len(got) != 1 || got[0].status.Version != "1.2.3" || got[0].status.DataPlane != "xdp" ||
			got[0].status.Services != (v1alpha1.ServiceCounts{Total: 3, Programmed: 3}) || got[0].status.Backends.Total != 3 {
			t.Fatalf("sent %+v", got)
		}

		dead := services[1].Backends[0].ID()
		agent.Store.ApplyVerdicts([]health.Verdict{{VIP: services[1].VIP, Backend: dead, State: health.State{Checked: true, Known: true, Reason: "timeout"}}})
		time.Sleep(time.Second)
		got := reports()
		if len(got) != 2 || got[1].status.Backends.Unhealthy != 1 || len(got[1].status.Unhealthy) != 1 ||
			got[1].status.Unhealthy[0].Backend != dead.String() || got[1].status.Unhealthy[0].Service != "s1" || got[1].status.Unhealthy[0].Message != "timeout" {
			t.Fatalf("sent %+v, want the dead backend", got[1:])
		}

		full.Store(true)
		services[2].Forward = lb.DSR
		agent.Set(t, services...)
		sessions.Store(1)
		time.Sleep(time.Second)
		if got := reports(); len(got) != 3 || got[2].status.Services.Failed != 1 || got[2].status.Routes.Sessions != 1 ||
			len(got[2].status.FailedServices) != 1 || got[2].status.FailedServices[0] != (v1alpha1.NodeProblem{Object: "s2", Message: "vip tcp 10.1.0.2:80: table is full"}) {
			t.Fatalf("sent %+v, want the failure", got[2:])
		}

		draining.Store(true)
		time.Sleep(time.Second)
		if got := reports(); len(got) != 4 || got[2].status.Draining || !got[3].status.Draining {
			t.Fatalf("sent %+v, want that the node drains", got[3:])
		}
		draining.Store(false)
		agent.Store.Drain(store.Drain{})
		time.Sleep(reportInterval)
		if got := reports(); !got[len(got)-1].status.Draining {
			t.Fatalf("sent %+v, want that an operator drains the node", got[4:])
		}
	})
}

// A node that changes all the time doesn't report all the time, and the last report has the last
// change. A backend that dies meanwhile is reported within a second. At rest there is one report a
// minute.
func TestReportRateLimit(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		reports := reporting(t, agent, noRoutes, accepted)
		const changes, each = 120, 500 * time.Millisecond
		for n := range changes {
			agent.Set(t, checkedServices(0, n+1)...)
			if n == changes/2+3 {
				before := len(reports())
				judged := checkedServices(0, 1)[0]
				agent.Store.ApplyVerdicts([]health.Verdict{{VIP: judged.VIP, Backend: judged.Backends[0].ID(), State: health.State{Checked: true, Known: true, Reason: "timeout"}}})
				time.Sleep(time.Second)
				if got := reports()[before:]; len(got) == 0 || len(got[0].status.Unhealthy) != 1 {
					t.Errorf("sent %+v, want the dead backend", got)
				}
			}
			time.Sleep(each)
		}
		time.Sleep(reportInterval + reportTick)
		got := reports()
		if most := reportBurst + int((changes*each+reportInterval)/reportInterval) + 2; len(got) > most || len(got) < reportBurst {
			t.Errorf("%d reports of %d changes in a minute, want %d to %d", len(got), changes, reportBurst, most)
		}
		if last := got[len(got)-1].status.Services.Total; last != changes {
			t.Errorf("the last report has %d services, want %d", last, changes)
		}
		time.Sleep(time.Hour)
		if more := len(reports()) - len(got); more < 58 || more > 61 {
			t.Errorf("%d reports in an hour without a change, want 60", more)
		}
	})
}

// A service that is programmed and has failed since doesn't stand for one that hasn't been tried.
func TestReportWaitsForAllServices(t *testing.T) {
	r := reporter{store: store.New(), describe: func() observe.Status { return observe.Status{} }}
	services := checkedServices(0, 2)
	snapshot, err := r.store.Set(services)
	if err != nil {
		t.Fatal(err)
	}
	failed := store.Status{VIP: services[0].VIP, Programmed: snapshot.Revision, Error: "no memory"}
	r.store.SetStatus([]store.Status{failed}, nil)
	if status, settled := r.complete(v1alpha1.BalancerNodeStatus{}); settled {
		t.Errorf("settled with %+v, of which one service has not been tried", status.Services)
	}
	r.store.SetStatus([]store.Status{{VIP: services[1].VIP, Programmed: snapshot.Revision}}, nil)
	if status, settled := r.complete(v1alpha1.BalancerNodeStatus{}); !settled {
		t.Errorf("not settled with %+v", status.Services)
	}
}

// A report that changes and changes back before it can be written is written once more.
func TestReportBriefChange(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		var sessions atomic.Int32
		reports := reporting(t, agent, func() v1alpha1.BalancerNodeStatus {
			return v1alpha1.BalancerNodeStatus{Routes: v1alpha1.RouteCounts{Sessions: sessions.Load()}}
		}, accepted)
		before := reports()
		for ; len(before) < reportBurst; before = reports() {
			sessions.Add(1)
			time.Sleep(2 * reportTick)
		}
		sessions.Add(1)
		time.Sleep(2 * reportTick)
		sessions.Add(-1)
		time.Sleep(2 * reportInterval)
		got := reports()
		if len(before) != reportBurst || len(got) != reportBurst+1 || got[reportBurst].status.Routes.Sessions != before[reportBurst-1].status.Routes.Sessions {
			t.Errorf("sent %+v, then %+v; want one more report with as many sessions", before, got[len(before):])
		}
	})
}

// A failed report is retried with backoff, with the changes since then.
func TestReportRetry(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		const failures = 30
		reports := reporting(t, agent, noRoutes, func(n int) error {
			if n <= failures {
				return errors.New("not allowed")
			}
			return nil
		})
		time.Sleep(time.Minute)
		early := len(reports())
		agent.Set(t, checkedServices(0, 2)...)
		time.Sleep(time.Hour)
		got := reports()
		if early > 10 || len(got) <= failures {
			t.Errorf("%d attempts in the first minute, %d in all", early, len(got))
		}
		if last := got[failures].status.Services.Total; last != 2 {
			t.Errorf("the report that was written has %d services, want 2", last)
		}
	})
}

// The list of problems is bounded and shared among namespaces, and an object with many problems takes one place.
func TestReportedProblems(t *testing.T) {
	var problems []v1alpha1.NodeProblem
	for n := range report.MaxListed + 7 {
		for range 32 {
			problems = append(problems, v1alpha1.NodeProblem{Object: fmt.Sprintf("Service a/%d", n), Message: "no"})
		}
	}
	problems = append(problems, v1alpha1.NodeProblem{Object: "Service b/web", Message: strings.Repeat("ä", 200)})
	var r v1alpha1.BalancerNodeStatus
	addProblems(&r, problems)
	if len(r.Problems) != report.MaxListed || r.OmittedProblems != 8 || r.Problems[1].Object != "Service a/1" {
		t.Errorf("%d problems and %d more, want %d and 8", len(r.Problems), r.OmittedProblems, report.MaxListed)
	}
	if last := r.Problems[report.MaxListed-1]; last.Object != "Service b/web" || last.Message != strings.Repeat("ä", 128)+"…" {
		t.Errorf("the last problem is %+v, want the other namespace's", last)
	}
}

// A namespace whose backends are all dead, or whose services all fail, leaves room for other namespaces.
func TestReportIsSharedAmongNamespaces(t *testing.T) {
	r := reporter{store: store.New(), describe: func() observe.Status { return observe.Status{} }}
	services := checkedServices(0, report.MaxListed+20)
	for i := range services {
		services[i].Name = fmt.Sprintf("flb:many/b%d/web", i)
	}
	services[len(services)-1].Name = "few/web/80"
	if _, err := r.store.Set(services); err != nil {
		t.Fatal(err)
	}
	for _, s := range services {
		r.store.ApplyVerdicts([]health.Verdict{{VIP: s.VIP, Backend: s.Backends[0].ID(), State: health.State{Checked: true, Known: true, Reason: "timeout"}}})
		r.store.SetStatus([]store.Status{{Name: s.Name, VIP: s.VIP, Error: "no memory"}}, nil)
	}
	got, _ := r.complete(v1alpha1.BalancerNodeStatus{})
	all := int32(len(services))
	if got.Services.Failed != all || got.Backends.Unhealthy != all || len(got.FailedServices) != report.MaxListed || len(got.Unhealthy) != report.MaxListed {
		t.Fatalf("%d of %+v and %d of %+v listed, want %d", len(got.FailedServices), got.Services, len(got.Unhealthy), got.Backends, report.MaxListed)
	}
	if f, u := got.FailedServices[report.MaxListed-1].Object, got.Unhealthy[report.MaxListed-1].Service; f != "few/web/80" || u != f {
		t.Errorf("the last ones listed are %s and %s, want the other namespace's", f, u)
	}
}

// A report covers objects once all that they ask for has been programmed or has failed.
func TestReportObservedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := agenttest.New(t, observe.Status{})
		var blocked atomic.Pointer[chan struct{}]
		agent.DP.Fail = func(op string, _ lb.VIP) error {
			if c := blocked.Load(); c != nil && op == "update" {
				<-*c
				return errors.New("table is full")
			}
			return nil
		}
		agent.Start(t)
		services := checkedServices(0, 2)
		agent.Set(t, services...)
		var version atomic.Int32
		version.Store(5)
		reports := reporting(t, agent, func() v1alpha1.BalancerNodeStatus {
			return v1alpha1.BalancerNodeStatus{Observed: v1alpha1.ObservedVersions{Services: strconv.Itoa(int(version.Load()))}}
		}, accepted)
		last := func() v1alpha1.BalancerNodeStatus {
			time.Sleep(2 * reportInterval)
			all := reports()
			return all[len(all)-1].status
		}
		if got := last(); got.Observed.Services != "5" {
			t.Errorf("covers %+v, want 5", got.Observed)
		}
		c := make(chan struct{})
		blocked.Store(&c)
		services[1].Forward = lb.DSR
		if _, err := agent.Store.Update(services[1:], nil); err != nil {
			t.Fatal(err)
		}
		version.Store(6)
		if got := last(); got.Observed.Services != "5" || got.Services.Programmed != 1 {
			t.Errorf("covers %+v while a service is being programmed (%+v), want 5", got.Observed, got.Services)
		}
		close(c)
		if got := last(); got.Observed.Services != "6" || got.Services.Failed != 1 {
			t.Errorf("covers %+v when it has failed (%+v), want 6", got.Observed, got.Services)
		}
	})
}

// Traffic is measured once a minute, and more often while a node drains. A new service, and one whose counters begin at zero again, has none yet.
func TestReportedTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read dataplane.Stats
		var failure error
		calls, draining := 0, false
		traffic := &traffic{read: func(context.Context) (dataplane.Stats, error) { calls++; return read, failure }}
		count := func(counters ...uint64) {
			read = dataplane.Stats{Services: map[lb.VIP]dataplane.ServiceStats{}}
			for n, packets := range counters {
				read.Services[lb.VIP{Port: uint16(n)}] = dataplane.ServiceStats{Traffic: dataplane.Traffic{Packets: packets, Bytes: 100 * packets}}
			}
		}
		check := func(what string, packets, bits int64) {
			t.Helper()
			want := v1alpha1.NodeTraffic{PacketsPerSecond: packets, BitsPerSecond: bits}
			for range 3 { // as often as a node reports
				traffic.update(t.Context(), draining)
			}
			if traffic.rate != want {
				t.Errorf("%s: %d packets and %d bits per second, want %d and %d", what, traffic.rate.PacketsPerSecond, traffic.rate.BitsPerSecond, packets, bits)
			}
			if draining {
				time.Sleep(reportInterval)
				return
			}
			time.Sleep(reportRefresh)
		}
		count(6000, 600)
		check("first reading", 0, 0)
		count(6600, 1200)
		check("both forward", 20, 16000)
		check("none forwards", 0, 0)
		count(7200, 60, 9000)
		check("one forwards, one is another service, one is new", 10, 8000)
		failure, read = errors.New("no table"), dataplane.Stats{}
		check("counters can't be read", 10, 8000)
		failure = nil
		count(9600, 60, 9000)
		check("one has forwarded in two minutes", 20, 16000)
		draining = true
		count(10200, 60, 9000)
		check("a node that drains", 10, 8000)
		count(10300, 60, 9000)
		check("some seconds later", 20, 16000)
		check("nothing is left", 0, 0)
		if calls != 11 {
			t.Errorf("counters were read %d times, want 11", calls)
		}
	})
}
