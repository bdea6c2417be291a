// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/golden"
)

// The whole page, line by line: a service with traffic and a backend that can't
// be reached, one in a segment, and a prune that fails at first.
func TestExposition(t *testing.T) {
	withAgent(t, func(t *testing.T, a *testAgent) {
		began := time.Now()
		a.DP.Fail = func(op string, _ lb.VIP) error {
			time.Sleep(time.Millisecond)
			if op == "prune" && time.Since(began) < 10*time.Millisecond {
				return errors.New("busy")
			}
			return nil
		}
		a.DP.SetUnusable(netip.MustParseAddrPort("10.0.0.2:80"), "no route")
		a.Start(t)
		a.Set(t, service("web", webVIP, 3), service("dns", dnsVIP, 1))
		time.Sleep(time.Second)
		for port := range uint16(10) {
			a.DP.Probe(webVIP, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port))
		}
		status, body := scraped(t, metricsHandler(slog.New(slog.DiscardHandler), a.collectors()...))
		if status != http.StatusOK {
			t.Errorf("status %d: %s", status, body)
		}
		shown := strings.ReplaceAll(only(body, "fairlead_"), runtime.Version(), "go1.0")
		golden.File(t, "testdata/metrics.txt", shown)
		for _, other := range []string{"go_goroutines", "process_resident_memory_bytes", "promhttp_metric_handler_errors_total"} {
			if only(body, other) == "" {
				t.Errorf("no %s", other)
			}
		}
	})
}

// Counters that can't be read are absent, not 0, and the error is counted and logged; the
// process's metrics remain, and the next scrape with counters has all.
func TestUnreadable(t *testing.T) {
	withAgent(t, func(t *testing.T, a *testAgent) {
		a.Start(t)
		a.Set(t, service("web", webVIP, 1))
		var log bytes.Buffer
		handler := metricsHandler(slog.New(slog.NewTextHandler(&log, nil)), a.collectors()...)
		a.Unreadable.Store(new(errors.New("broken")))
		status, body := scraped(t, handler)
		if status != http.StatusOK || only(body, "fairlead_") != only(body, "fairlead_reconcile_") || only(body, "go_goroutines") == "" {
			t.Errorf("status %d: %s: want those of the process and of reconcile alone", status, body)
		}
		if !strings.Contains(log.String(), "broken") {
			t.Errorf("log %q, want the reason", log.String())
		}
		a.Unreadable.Store(nil)
		_, body = scraped(t, handler)
		if only(body, "fairlead_service_packets_total{") == "" {
			t.Errorf("%s: want packets again", body)
		}
		if got := only(body, `promhttp_metric_handler_errors_total{cause="gathering"}`); !strings.HasSuffix(got, " 1\n") {
			t.Errorf("%s: want one error", got)
		}
	})
}

// A backend has a metric of its health only after the first result, and one of the probe's
// duration only after a probe.
func TestVerdicts(t *testing.T) {
	backend := func(n byte, h observe.Health) observe.Backend {
		return observe.Backend{Service: "web", VIP: webVIP, Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Port: 80, Health: h}
	}
	all := []observe.Backend{
		backend(1, observe.Health{State: "healthy", Took: 1500 * time.Microsecond}),
		backend(2, observe.Health{State: "unhealthy", Took: time.Second}),
		backend(3, observe.Health{State: "checking"}),
		backend(4, observe.Health{State: "unchecked"}),
	}
	want := `
# HELP fairlead_backend_healthy Result of the health check: 1 if healthy. Absent without a check and before the first result.
# TYPE fairlead_backend_healthy gauge
fairlead_backend_healthy{backend="10.0.0.1:80",service="web",vip="10.1.1.1:80/tcp"} 1
fairlead_backend_healthy{backend="10.0.0.2:80",service="web",vip="10.1.1.1:80/tcp"} 0
# HELP fairlead_backend_probe_duration_seconds Duration of the last probe.
# TYPE fairlead_backend_probe_duration_seconds gauge
fairlead_backend_probe_duration_seconds{backend="10.0.0.1:80",service="web",vip="10.1.1.1:80/tcp"} 0.0015
fairlead_backend_probe_duration_seconds{backend="10.0.0.2:80",service="web",vip="10.1.1.1:80/tcp"} 1
`
	shown := collector(func(s *scrape) { s.backends(all) })
	err := testutil.CollectAndCompare(shown, strings.NewReader(want), "fairlead_backend_healthy", "fairlead_backend_probe_duration_seconds")
	if err != nil {
		t.Error(err)
	}
}

// The largest configuration takes less than ten megabytes, before compression:
// every service is shown, and as many backends as have room.
func TestMetricsSize(t *testing.T) {
	const services, each = 4096, 16
	var all []observe.Service
	var backends []observe.Backend
	for i := range services {
		at := webVIP
		at.Port = uint16(i)
		name := fmt.Sprintf("service-%d", i)
		all = append(all, observe.Service{Name: name, VIP: at})
		for j := range byte(each) {
			backends = append(backends, observe.Backend{
				Service: name, VIP: at, Address: netip.AddrFrom4([4]byte{10, 0, 0, j}), Port: at.Port,
			})
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(func(s *scrape) {
		s.services(all)
		s.backends(backends)
	}))
	_, body := scraped(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if got := len(body); got > 10e6 {
		t.Errorf("%d bytes, want at most ten million", got)
	}
	for prefix, want := range map[string]int{
		"fairlead_service_packets_total{": services, "fairlead_backend_packets_total{": maxBackendMetrics,
	} {
		if got := strings.Count(only(body, prefix), "\n"); got != want {
			t.Errorf("%d samples %s…, want %d", got, prefix, want)
		}
	}
	if got, want := only(body, "fairlead_observe_backends_omitted "), fmt.Sprintf("%d\n", services*each-maxBackendMetrics); !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %s", got, want)
	}
	t.Logf("%d bytes", len(body))
}
