// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"testing"

	"fairlead.io/fairlead/internal/bench"
)

// The measurement of broken connections runs from the lab to the report, in
// small. No change of backends breaks a connection; the loss of a balancer may.
func TestBenchChurn(t *testing.T) {
	needRoot(t)
	var report bench.Report
	out := show(t, "bench", "churn", "--connections", "60", "--changes", "24", "--seed", "5", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	results := map[string]bench.Result{}
	for _, r := range report.Results {
		results[r.Name] = r
	}
	for name, want := range map[string]struct{ least, most float64 }{
		"changes": {24, 24}, "tcp_connections": {60, 1000}, "tcp_lines": {120, 1e5}, "tcp_broken": {0, 1000},
		"udp_flows": {10, 10}, "udp_datagrams": {20, 1e5}, "udp_moved": {0, 10}, "packets_lost": {0, 0},
	} {
		for _, phase := range []string{"", "_health", "_balancer_loss"} {
			if name == "packets_lost" && phase == "_health" {
				continue // those to dead servers
			}
			got, there := results[name+phase]
			if !there || got.Runs != 1 || got.Median < want.least || got.Median > want.most {
				t.Errorf("%s: %+v, want one in %.0f to %.0f", name+phase, got, want.least, want.most)
			}
		}
	}
	if seed := results["changes"].Labels["seed"]; seed != "5" {
		t.Errorf("seed %q, want 5", seed)
	}
	if len(report.Verdicts) != 2 {
		t.Fatalf("verdicts %+v, want two", report.Verdicts)
	}
	for i, name := range []string{"tcp_broken", "tcp_broken_health"} {
		broken := results[name].Median
		if v := report.Verdicts[i]; v.Value != broken || !v.Holds {
			t.Errorf("verdict %+v of %.0f broken connections, want none", v, broken)
		}
	}
	if results["deaths_health"].Median < 1 {
		t.Errorf("%.0f servers died, want at least one", results["deaths_health"].Median)
	}
}
