// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/bench"
)

// A percentile needs ten samples above.
func TestPercentiles(t *testing.T) {
	for samples, want := range map[int][]string{
		19: nil, 20: {"50"}, 100: {"50", "90"}, 999: {"50", "90", "95"}, 10_000: {"50", "90", "95", "99", "99.9"},
		100_000: {"50", "90", "95", "99", "99.9", "99.99"},
	} {
		latencies, f := make(bench.Runs, samples), found{}
		for i := range latencies {
			latencies[i] = float64(i+1) / float64(samples)
		}
		f.addPercentiles(latencies)
		for _, p := range []string{"50", "90", "95", "99", "99.9", "99.99", "99.999"} {
			if _, has := f[latency+p]; has != slices.Contains(want, p) {
				t.Errorf("%d samples: percentile %s: %v", samples, p, has)
			}
		}
		if samples == 100 && f[latency+"90"] != 0.9 {
			t.Errorf("percentile 90 is %g, want 0.9", f[latency+"90"])
		}
	}
}

// Each number becomes a result with its labels, and networks are compared round by round. A
// network whose rate was too high has its most only.
func TestReport(t *testing.T) {
	r, err := bench.NewReport("latency", "", false)
	if err != nil {
		t.Fatal(err)
	}
	c := conditions{small, 30, hostNetwork}
	err = c.report(r, bench.Found[found]{
		c.cell(hostNetwork):   {{"rate requests/s": 300, latency + "50": 2}, {"rate requests/s": 300, latency + "50": 4}},
		c.cell(routesNetwork): {{"busy share processor=1": 0.5, latency + "50": 3}, {"busy share processor=1": 0.7, latency + "50": 6}},
		c.cell("vxlan"):       {{"most requests/s": 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 5 || len(r.Ratios) != 1 || r.Ratios["routes_over_host_350_30_host"] != 1.5 || len(r.Verdicts) != 1 || !r.Verdicts[0].Holds {
		t.Errorf("results %+v, ratios %v, verdicts %+v", r.Results, r.Ratios, r.Verdicts)
	}
	for _, result := range r.Results {
		if l := result.Labels; result.Name == "busy" && (result.Median != 0.6 || result.Unit != "share" || l["processor"] != "1" || l["network"] != routesNetwork || l["load"] != "30") {
			t.Errorf("result %+v", result)
		}
	}
}

// A script's commands are for both sides.
func TestNetworks(t *testing.T) {
	for _, n := range networks() {
		if n.topology.Host(n.client) == nil || n.topology.Host(n.server) == nil {
			t.Errorf("%s: no host %s or %s", n.name, n.client, n.server)
		}
		for _, c := range n.commands {
			if n.topology.Host(strings.Fields(c)[0]) == nil {
				t.Errorf("%s: no host for %q", n.name, c)
			}
		}
		if n.name == routesNetwork && (len(n.commands) != 14 || !slices.Contains(n.commands, "node2 ip route add 10.244.1.0/24 via 10.0.0.1")) {
			t.Errorf("%s: commands %q", n.name, n.commands)
		}
	}
}
