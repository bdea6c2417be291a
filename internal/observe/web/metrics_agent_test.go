// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	agenttest "fairlead.io/fairlead/test/agent"
	"fairlead.io/fairlead/test/fake"
)

var (
	loaded = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	webVIP = fake.VIP("10.1.1.1")
	dnsVIP = lb.VIP{Address: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: lb.UDP, Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 100}}
)

// testAgent is an agent on the fake data plane, whose calls take no time unless a test lets them.
type testAgent struct {
	*agenttest.Agent
	observer *observe.Observer
}

// withAgent runs a test of an agent in a bubble.
func withAgent(t *testing.T, test func(t *testing.T, a *testAgent)) {
	synctest.Test(t, func(t *testing.T) {
		a := &testAgent{Agent: agenttest.New(t, status())}
		a.Announced.Store(new(routes()))
		a.observer = observe.NewObserver(a, observe.NewRecorder(slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler))
		test(t, a)
	})
}

// status is an agent's, with all that metrics show of it.
func status() observe.Status {
	return observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", Kernel: "6.1.0", Started: loaded,
		Kubernetes: &source.State{Server: "https://10.0.0.1:6443", Reachable: true, Synced: time.Unix(1, 0), Objects: 2, Problems: []v1alpha1.NodeProblem{{Object: "Service default/web", Message: "wrong"}}},
		APIServer:  &source.State{Server: "https://10.0.0.2:9575", Error: "timeout", Restored: time.Unix(1, 0), Objects: 1},
		FollowedBackends: []source.FollowedBackends{
			{Service: "web", From: "Service web, port http", Backends: 3, Answered: time.Unix(1, 0), Problems: []string{"endpoint 10.244.1.2 is this balancer itself"}},
			{Service: "api", From: "SRV records of api.example", Error: "no response", Awaited: true},
		},
		Config: source.File{Path: "/etc/fairlead.yaml", Loaded: loaded, Error: "x.yaml:1:2: bad", Refused: loaded.Add(time.Second)},
		DataPlane: observe.DataPlane{
			Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}, {Interface: "eth1", Mode: "generic", Reason: "no driver"}},
		},
	}
}

// collectors returns the collectors of the agent and its parts.
func (a *testAgent) collectors() []prometheus.Collector {
	return append(a.Reconciler.Metrics(), agentMetrics(a.observer))
}

// routes are two prefixes and two peers, one each in trouble.
func routes() observe.Routes {
	router, router6 := netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("fd00:2::1")
	return observe.Routes{
		Enabled: true, ASN: 65021, RouterID: netip.MustParseAddr("10.0.2.11"),
		Announcements: []observe.Announcement{
			{Prefix: netip.MustParsePrefix("10.1.1.1/32"), Announced: true, Peers: []netip.Addr{router}, GracefulShutdown: true},
			{Prefix: netip.MustParsePrefix("fd00::1/128"), Reason: "dns: 0 of 1 backends healthy, 1 wanted", Withdrawals: 3},
		},
		Peers: []bgp.PeerState{
			{Address: router, ASN: 65000, State: bgp.Established, Flaps: 1, BFD: bgp.BFDUp, BFDFlaps: 2,
				MessagesReceived: 10, MessagesSent: 20, UpdatesReceived: 3, UpdatesSent: 4, RoutesReceived: 5, RoutesAnnounced: 1},
			{Address: router6, ASN: 65000, State: bgp.OpenSent},
		},
		Hook: &observe.RouteHook{Program: "/etc/fairlead/route-hook", Pending: 1, Reason: "add: exit status 1", Failures: 3},
	}
}

// scraped returns an answer of the handler.
func scraped(t *testing.T, handler http.Handler) (status int, body string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	response := recorder.Result()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// only keeps the lines of an exposition that are about the metrics with a prefix.
func only(body, prefix string) string {
	var kept strings.Builder
	for line := range strings.Lines(body) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, prefix) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// service has the backends 10.0.0.1 to 10.0.0.n.
func service(name string, at lb.VIP, backends int) lb.Service {
	addresses := make([]string, backends)
	for i := range addresses {
		addresses[i] = fmt.Sprint("10.0.0.", i+1)
	}
	return fake.Service(name, at, addresses...)
}
