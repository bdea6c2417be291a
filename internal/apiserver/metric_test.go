// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/test/golden"
)

// The reference has every metric with its help text.
func TestMetricReference(t *testing.T) {
	m := newMetrics(&keyring{})
	m.count("GET", 200)
	m.observe("GET", time.Second)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.collectors()...)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != len(m.collectors()) {
		t.Fatalf("%d metrics, error %v", len(families), err)
	}
	var rows strings.Builder
	rows.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range families {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		if labels == nil {
			labels = []string{"–"}
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	golden.Parts(t, "../../docs/reference/metrics.md", "<!-- made by go test ./internal/apiserver -update -->\n", rows.String())
}

// Metrics count responses; probes say whether the server is ready.
func TestMetricsHandler(t *testing.T) {
	a := newAPI(t, 1)
	a.must(200, "web", "GET", base, "")
	a.must(401, "", "GET", base, "")
	s := a.servers[0].(*server)
	s.keys.refused.Store(true)
	wrong := errors.New("not yet")
	handler := s.metrics.handler(slog.New(slog.DiscardHandler), func() error { return wrong })
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w.Code, w.Body.String()
	}
	_, text := get("/metrics")
	for _, want := range []string{
		`fairlead_apiserver_requests_total{code="200",method="GET"} 1`, `fairlead_apiserver_requests_total{code="401",method="GET"} 1`,
		`fairlead_apiserver_request_duration_seconds_count{method="GET"} 2`, "fairlead_apiserver_authentication_failures_total 1",
		"fairlead_apiserver_credentials_refused 1", "go_goroutines ",
	} {
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if code, body := get(readyPath); code != 503 || !strings.Contains(body, "not yet") {
		t.Errorf("not ready: status %d, %s", code, body)
	}
	wrong = nil
	for _, path := range []string{readyPath, healthPath} {
		if code, _ := get(path); code != 200 {
			t.Errorf("%s: status %d", path, code)
		}
	}
}
