// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/fake"
)

// update is an update as another program would decode it.
type update struct {
	Error    string
	NotReady string
	Status   struct {
		Node string
		BGP  observe.RouteSummary
	}
	Totals   struct{ PacketsPerSecond float64 }
	Services []struct {
		Name, Condition  string
		PacketsPerSecond float64
		History          []*float64
	}
	Matching int
	Backends []struct{ Service, Address string }
	Routes   struct {
		Announcements []struct {
			Prefix, Condition string
			Services          []string
			ServiceCount      int
		}
		Peers []struct{ Address, State string }
	}
	History *struct{ PacketsPerSecond []*float64 }
	Events  []observe.Event
}

// page polls the page's data once.
func (a *testAgent) page(query string) (u update) {
	a.t.Helper()
	response, body := a.get("/api/v1/page?" + query)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json" {
		a.t.Fatalf("status %d, %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	if err := json.Unmarshal([]byte(body), &u); err != nil {
		a.t.Fatal(err)
	}
	return u
}

// until polls the page's data until it is as it should be.
func (a *testAgent) until(what, query string, holds func(update) bool) {
	a.t.Helper()
	await.True(a.t, what, func() bool { return holds(a.page(query)) })
}

// The data has the selected services, and the last minutes on request.
func TestPage(t *testing.T) {
	a := startAgent(t, 3)
	a.events.Add(observe.Event{Kind: "program", Object: "eth0"})
	first := a.page("open=s1&filter=s1&history")
	if first.Status.Node != "lb1" || len(first.Services) != 1 || first.Matching != 1 || first.Services[0].Condition != "ok" ||
		len(first.Backends) != 2 || first.History == nil || len(first.History.PacketsPerSecond) != observe.HistoryLength ||
		len(first.Events) != 1 || first.NotReady != "" || first.Error != "" {
		t.Errorf("first update %+v", first)
	}
	second := a.page("filter=s1")
	if second.History != nil || len(second.Events) != 1 || len(second.Services) != 1 || second.Services[0].History != nil {
		t.Errorf("second update %+v", second)
	}

	a.until("the rates", "filter=s1", func(u update) bool {
		for range 100 {
			a.DP.Probe(fake.Numbered(1), netip.MustParseAddrPort("192.0.2.1:1000"))
		}
		return u.Totals.PacketsPerSecond > 10 && u.Services[0].PacketsPerSecond > 10
	})
	a.events.Add(observe.Event{Kind: "drain", Object: "s1"})
	a.until("the event", "", func(u update) bool { return len(u.Events) == 2 && u.Events[0].Kind == "drain" })
	busy := a.page("history")
	if len(busy.Services) != 3 || len(busy.Services[1].History) != observe.HistoryLength || busy.Services[0].History != nil {
		t.Errorf("a page that opens doesn't get the history: %+v", busy)
	}

	unreadable, unready := errors.New("no tables"), errors.New("draining")
	a.Unreadable.Store(&unreadable)
	a.unready.Store(&unready)
	a.until("the error of the counters", "", func(u update) bool { return u.Error == "no tables" && u.NotReady == "draining" })
	if response, body := a.get("/api/v1/status"); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no tables") {
		t.Errorf("status %d, %q", response.StatusCode, body)
	}
	a.Unreadable.Store(nil)
	a.until("the counters", "", func(u update) bool { return u.Error == "" })
}

// Of hundreds of services the page gets services with problems first, then the busiest, and
// services that match its filter.
func TestPageLimit(t *testing.T) {
	a := startAgent(t, 400)
	first := a.page("")
	if len(first.Services) != 100 || first.Matching != 400 || first.Services[0].Name != "s333" {
		t.Errorf("%d services of %d, %s first: want 100 of 400, and first the one that can't be programmed",
			len(first.Services), first.Matching, first.Services[0].Name)
	}
	a.until("the busiest service", "", func(u update) bool {
		a.DP.Probe(fake.Numbered(301), netip.MustParseAddrPort("192.0.2.1:1000"))
		return u.Services[1].Name == "s301"
	})
	found := a.page("filter=s222&open=s222")
	if len(found.Services) != 1 || found.Services[0].Name != "s222" || len(found.Backends) != 2 {
		t.Errorf("found %+v", found.Services)
	}
}

// Of thousands of routes and peers the page has those in trouble first.
func TestPageOfRoutes(t *testing.T) {
	a := startAgent(t, 1)
	a.Announced.Store(announcing(4096, 300))
	var seen update
	a.until("the routes", "", func(u update) bool {
		seen = u
		return u.Status.BGP.Enabled
	})
	want := observe.RouteSummary{Enabled: true, ASN: 65021, Peers: 300, RouteCounts: v1alpha1.RouteCounts{Announced: 4095, Withheld: 1, Sessions: 299}}
	if seen.Status.BGP != want {
		t.Errorf("counts %+v, want %+v", seen.Status.BGP, want)
	}
	routes, peers := seen.Routes.Announcements, seen.Routes.Peers
	if len(routes) != 100 || routes[0].Prefix != "10.1.15.255/32" || routes[0].Condition != "not announced: damped for 4s" ||
		routes[1].Prefix != "10.1.0.0/32" {
		t.Errorf("%d routes, %+v first: want 100, first the one that is not announced", len(routes), routes[:2])
	}
	if a := routes[0]; len(a.Services) != 3 || a.ServiceCount != 5 {
		t.Errorf("%d of %d services are named, want 3 of 5", len(a.Services), a.ServiceCount)
	}
	if len(peers) != 100 || peers[0].Address != "10.2.1.43" || peers[0].State != "idle" || peers[1].Address != "10.2.0.0" {
		t.Errorf("%d peers, %+v first: want 100, first the idle one", len(peers), peers[:2])
	}
}
