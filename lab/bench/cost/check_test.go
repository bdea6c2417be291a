// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"os"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/bench"
)

// TestMain answers checks in the process that a test starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "servers" {
		listener, err := CheckListener()
		if err != nil || ServeChecks(os.Stdin, listener) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every backend is really checked, and servers end with their input.
func TestChecks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("benches need root")
	}
	cfg := CheckConfig{Backends: 40, Servers: []string{os.Args[0], "servers"}}
	report, err := bench.Run(t.Context(), bench.Config{}, cfg.bench(checkPlan{warmUp: time.Second, rounds: 2, round: time.Second / 2}))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, r := range report.Results {
		found[r.Name] += r.Runs
		if r.Median <= 0 && r.Name != "failed" {
			t.Errorf("%s of %v is %g", r.Name, r.Labels, r.Median)
		}
	}
	for _, name := range []string{"cost", "probe_cost", "rate"} {
		if found[name] != 4 {
			t.Errorf("%d rounds of %s, want 2 of each kind of check", found[name], name)
		}
	}
	if len(report.Verdicts) != 4 || report.Ratios["tcp_cores"] <= 0 || report.Ratios["http_cores"] <= 0 {
		t.Errorf("ratios %v, verdicts %v", report.Ratios, report.Verdicts)
	}
	cfg.Servers = []string{"no-such-program"}
	if report, err := Checks(t.Context(), cfg); err == nil || report != nil {
		t.Errorf("without servers: report %v, error %v", report, err)
	}
}

func TestChecksRefuse(t *testing.T) {
	for _, backends := range []int{0, maxBackends + 1} {
		if _, err := Checks(t.Context(), CheckConfig{Backends: backends}); err == nil {
			t.Errorf("%d backends are accepted", backends)
		}
	}
}
