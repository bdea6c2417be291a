// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/golden"
)

// described calls check with all metrics of an agent, and those that only a reflector
// has, by name. A registry that checks every sample accepts all, and Prometheus' own
// linter has nothing to say.
func described(t *testing.T, check func(agent, reflector []*dto.MetricFamily)) {
	gather := func(all ...prometheus.Collector) []*dto.MetricFamily {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(all...)
		problems, err := testutil.GatherAndLint(registry)
		if err != nil || len(problems) > 0 {
			t.Error(err, problems)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Error(err)
		}
		return families
	}
	withAgent(t, func(t *testing.T, a *testAgent) {
		a.Start(t)
		checked := service("web", webVIP, 3)
		checked.Health = &lb.HealthCheck{Type: lb.HealthTCP}
		a.Set(t, checked, service("dns", dnsVIP, 1))
		a.Store.ApplyVerdicts([]health.Verdict{{
			VIP: webVIP, Backend: checked.Backends[0].ID(), State: health.State{Checked: true, Known: true, Healthy: true, Took: 1},
		}})
		a.DP.Probe(webVIP, netip.MustParseAddrPort("192.0.2.1:1234")) // one packet, one exit
		reflector := gather(reflectorMetrics(reflecting()))
		check(gather(slices.Concat(a.collectors(), health.New(health.Config{}).Metrics())...), slices.DeleteFunc(reflector, func(f *dto.MetricFamily) bool {
			return !strings.HasPrefix(f.GetName(), "fairlead_reflector_")
		}))
	})
}

// labels are the names of a metric's labels.
func labels(f *dto.MetricFamily) (names []string) {
	for _, pair := range f.GetMetric()[0].GetLabel() {
		names = append(names, pair.GetName())
	}
	return names
}

// The reference describes every metric as the agent does, then those that only a reflector
// has.
func TestReference(t *testing.T) {
	described(t, func(agent, reflector []*dto.MetricFamily) {
		golden.Parts(t, "../../../docs/reference/metrics.md", "<!-- made by go test ./internal/observe/web -update -->\n", table(agent), table(reflector))
	})
}

// table has a row for each metric.
func table(rows []*dto.MetricFamily) string {
	var out strings.Builder
	out.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range rows {
		cell := "–"
		if names := labels(f); names != nil {
			cell = "`" + strings.Join(names, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), cell, f.GetHelp())
	}
	return out.String()
}

// wellNamed is fairlead_SUBSYSTEM_NAME.
var wellNamed = regexp.MustCompile(`^fairlead_(service|backend|tracking|dataplane|health|reconcile|bgp|route|reflector|config|kubernetes|api|node|build|observe)_[a-z]+(_[a-z]+)*$`)

// The names of counters, and only of counters, end in _total; labels are few and
// known.
func TestNames(t *testing.T) {
	known := []string{
		"service", "vip", "backend", "exit", "interface", "mode", "operation",
		"prefix", "peer", "direction", "type",
		"version", "commit", "goversion", "kernel", "node", "dataplane",
	}
	described(t, func(agent, reflector []*dto.MetricFamily) {
		for _, f := range append(agent, reflector...) {
			name, help := f.GetName(), f.GetHelp()
			if !wellNamed.MatchString(name) || strings.HasSuffix(name, "_total") != (f.GetType() == dto.MetricType_COUNTER) {
				t.Errorf("%s: not well named for a %s", name, f.GetType())
			}
			if strings.HasSuffix(name, "_info") != slices.Contains([]string{"fairlead_build_info", "fairlead_dataplane_attachment_info"}, name) {
				t.Errorf("%s: an info, or none", name)
			}
			if !strings.HasSuffix(help, ".") || strings.Contains(help, "|") {
				t.Errorf("%s: help %q: want sentences", name, help)
			}
			for _, label := range labels(f) {
				if !slices.Contains(known, label) {
					t.Errorf("%s: unknown label %q", name, label)
				}
			}
		}
	})
}
