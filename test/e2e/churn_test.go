// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"testing"

	"fairlead.io/fairlead/internal/bench"
)

// The measurement of broken connections runs from the lab to the report, in
// small. No change of backends breaks a connection, nor does the loss of a
// balancer while there are none; the loss of one among changes may.
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
	type bounds struct{ least, most float64 }
	for _, phase := range []struct {
		suffix                    string
		changes, moved, datagrams bounds
	}{
		{"_balancer_loss", bounds{0, 0}, bounds{0, 0}, bounds{0, 1e5}},
		{"", bounds{24, 24}, bounds{0, 10}, bounds{0, 0}},
		{"_health", bounds{24, 24}, bounds{0, 10}, bounds{0, 1e5}}, // those to dead servers
		{"_balancer_loss_changes", bounds{24, 24}, bounds{0, 10}, bounds{0, 1e5}},
	} {
		for name, want := range map[string]bounds{
			"changes": phase.changes, "tcp_connections": {60, 1000}, "tcp_lines": {120, 1e5}, "tcp_broken": {0, 1000},
			"udp_flows": {10, 10}, "udp_datagrams": {20, 1e5}, "udp_moved": phase.moved, "packets_lost": phase.datagrams,
		} {
			got, there := results[name+phase.suffix]
			if !there || got.Runs != 1 || got.Median < want.least || got.Median > want.most {
				t.Errorf("%s: %+v, want one in %.0f to %.0f", name+phase.suffix, got, want.least, want.most)
			}
		}
	}
	if seed := results["changes"].Labels["seed"]; seed != "5" {
		t.Errorf("seed %q, want 5", seed)
	}
	judged := []string{"tcp_broken_balancer_loss", "udp_moved_balancer_loss", "tcp_broken", "tcp_broken_health"}
	if len(report.Verdicts) != len(judged) {
		t.Fatalf("verdicts %+v, want those of %v", report.Verdicts, judged)
	}
	for i, name := range judged {
		found := results[name].Median
		if v := report.Verdicts[i]; v.Value != found || !v.Holds {
			t.Errorf("%s: verdict %+v, want %.0f, and that it holds", name, v, found)
		}
	}
	if results["deaths_health"].Median < 1 {
		t.Errorf("%.0f servers died, want at least one", results["deaths_health"].Median)
	}
}
