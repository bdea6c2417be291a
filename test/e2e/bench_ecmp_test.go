// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"testing"

	"fairlead.io/fairlead/internal/bench"
)

// The measurement of routes runs from the lab to the report, in small: it finds
// the right tables, and reports every quantity that others read, for both
// families.
func TestBenchECMP(t *testing.T) {
	needRoot(t)
	var report bench.Report
	out := show(t, "bench", "ecmp", "--quick", "--router", "bird", "--changes", "9", "--seed", "5", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := map[string]map[string]bench.Result{}
	for _, r := range report.Results {
		if r.Labels["router"] != "bird" || r.Labels["reflector"] != "no" {
			t.Errorf("%s: labels %v", r.Name, r.Labels)
		}
		if found[r.Name] == nil {
			found[r.Name] = map[string]bench.Result{}
		}
		found[r.Name][r.Labels["family"]] = r
	}
	perFamily := []string{"tables_wrong", "update_delay_ms", "wrong_tables", "node_loss_outage_ms", "hung_agent_outage_ms",
		"agent_restart_lost", "clean_stop_lost", "drain_lost"}
	for _, name := range perFamily {
		for _, family := range []string{"ipv4", "ipv6"} {
			if r, there := found[name][family]; !there || r.Runs < 1 {
				t.Errorf("%s: nothing of %s", name, family)
			}
		}
	}
	for _, name := range []string{"agent_restart_tcp_broken", "clean_stop_tcp_broken", "drain_tcp_broken", "throughput", "request_failures"} {
		if found[name][""].Runs < 1 {
			t.Errorf("%s: nothing", name)
		}
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if wrong := found["tables_wrong"][family]; wrong.Max != 0 {
			t.Errorf("%s: %.0f tables are not those of table 6.2", family, wrong.Max)
		}
		if d := found["update_delay_ms"][family].Distribution; d == nil || len(d.Buckets) == 0 {
			t.Errorf("%s: delays without a distribution", family)
		}
	}
	if ratio := report.Ratios["throughput_most_over_one"]; ratio <= 1 {
		t.Errorf("four balancers have %.2f times the throughput of one", ratio)
	}
	if len(report.Verdicts) == 0 || report.Verdicts[0].Value != 0 || !report.Verdicts[0].Holds {
		t.Errorf("verdicts %+v, want first that no table is wrong", report.Verdicts)
	}
}
