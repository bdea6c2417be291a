// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
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

// viewer reads a stream.
type viewer struct {
	t     testing.TB
	body  io.ReadCloser
	lines *bufio.Scanner
}

// watch opens a stream that is closed when the test ends.
func (a *testAgent) watch(query string) *viewer {
	a.t.Helper()
	response, err := a.open(a.t.Context(), query)
	if err != nil {
		a.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		a.t.Fatalf("status %d, %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	v := &viewer{t: a.t, body: response.Body, lines: bufio.NewScanner(response.Body)}
	v.lines.Buffer(nil, 1<<24)
	a.t.Cleanup(func() { response.Body.Close() })
	return v
}

func (a *testAgent) open(ctx context.Context, query string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+"/api/v1/stream?"+query, http.NoBody)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
}

// next waits for an update; false is the end of the stream.
func (v *viewer) next() (u update, ok bool) {
	v.t.Helper()
	for v.lines.Scan() {
		data, found := strings.CutPrefix(v.lines.Text(), "data: ")
		if !found {
			continue
		}
		if err := json.Unmarshal([]byte(data), &u); err != nil {
			v.t.Fatal(err)
		}
		return u, true
	}
	return u, false
}

// until reads updates until one is as it should be.
func (v *viewer) until(what string, holds func(update) bool) {
	v.t.Helper()
	for range 30 { // one a second
		u, ok := v.next()
		if !ok {
			v.t.Fatalf("the stream ended before %s", what)
		}
		if holds(u) {
			return
		}
	}
	v.t.Fatalf("timed out waiting until %s", what)
}

// A viewer gets history and events once, and then only new events.
func TestStream(t *testing.T) {
	a := startAgent(t, 3)
	a.events.Add(observe.Event{Kind: "program", Object: "eth0"})
	v := a.watch("open=s1&filter=s1")
	first, _ := v.next()
	if first.Status.Node != "lb1" || len(first.Services) != 1 || first.Matching != 1 || first.Services[0].Condition != "ok" ||
		len(first.Backends) != 2 || first.History == nil || len(first.History.PacketsPerSecond) != observe.HistoryLength ||
		len(first.Events) != 1 || first.NotReady != "" || first.Error != "" {
		t.Errorf("first update %+v", first)
	}
	second, _ := v.next()
	if second.History != nil || second.Events != nil || len(second.Services) != 1 || second.Services[0].History != nil {
		t.Errorf("second update %+v", second)
	}

	for range 100 {
		a.DP.Probe(fake.Numbered(1), netip.MustParseAddrPort("192.0.2.1:1000"))
	}
	v.until("the rates are there", func(u update) bool {
		return u.Totals.PacketsPerSecond > 10 && u.Services[0].PacketsPerSecond > 10
	})
	a.events.Add(observe.Event{Kind: "drain", Object: "s1"})
	v.until("the event is there", func(u update) bool { return len(u.Events) == 2 && u.Events[0].Kind == "drain" })
	busy, _ := a.watch("").next()
	if len(busy.Services) != 3 || len(busy.Services[1].History) != observe.HistoryLength || busy.Services[0].History != nil {
		t.Errorf("a new viewer doesn't learn the history: %+v", busy)
	}

	unreadable, unready := errors.New("no tables"), errors.New("draining")
	a.Unreadable.Store(&unreadable)
	a.unready.Store(&unready)
	v.until("the counters are missed", func(u update) bool { return u.Error == "no tables" && u.NotReady == "draining" })
	if response, body := a.get("/api/v1/status"); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no tables") {
		t.Errorf("status %d, %q", response.StatusCode, body)
	}
	a.Unreadable.Store(nil)
	v.until("they are back", func(u update) bool { return u.Error == "" })

	a.stop()
	for range 5 {
		if _, ok := v.next(); !ok {
			return
		}
	}
	t.Error("the stream outlives the agent")
}

// Of hundreds of services a viewer gets services with problems first, then the busiest, and
// services that match its filter.
func TestStreamLimit(t *testing.T) {
	a := startAgent(t, 400)
	v := a.watch("")
	first, _ := v.next()
	if len(first.Services) != 100 || first.Matching != 400 || first.Services[0].Name != "s333" {
		t.Errorf("%d services of %d, %s first: want 100 of 400, and first the one that can't be programmed",
			len(first.Services), first.Matching, first.Services[0].Name)
	}
	v.until("the busiest service is in view", func(u update) bool {
		a.DP.Probe(fake.Numbered(301), netip.MustParseAddrPort("192.0.2.1:1000"))
		return u.Services[1].Name == "s301"
	})
	found, _ := a.watch("filter=s222&open=s222").next()
	if len(found.Services) != 1 || found.Services[0].Name != "s222" || len(found.Backends) != 2 {
		t.Errorf("found %+v", found.Services)
	}
}

// Of thousands of routes and peers a viewer sees those in trouble first.
func TestStreamOfRoutes(t *testing.T) {
	a := startAgent(t, 1)
	a.Announced.Store(announcing(4096, 300))
	var seen update
	a.watch("").until("the routes are there", func(u update) bool {
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

// Viewers are bounded, and others are served meanwhile; one that leaves makes room.
func TestViewerLimit(t *testing.T) {
	a := startAgent(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	for range 32 {
		response, err := a.open(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("status %d", response.StatusCode)
		}
	}
	if response, _ := a.get("/api/v1/stream"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one viewer too many: status %d", response.StatusCode)
	}
	if response, _ := a.get("/api/v1/status"); response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
	leave()
	await.True(t, "viewers that left count no more", func() bool {
		response, err := a.open(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}
