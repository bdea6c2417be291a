// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/test/e2e/harness"
)

// runBench runs a bench and returns its report. If the test fails, it logs the bench's
// output: which connections broke, for example.
func runBench(t *testing.T, args ...string) (report bench.Report) {
	t.Helper()
	harness.NeedRoot(t)
	status, out, progress := harness.Fairlead(t, slices.Concat([]string{"bench"}, args, []string{"-o", "json"})...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(progress)
		}
	})
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	harness.Decode(t, out, &report)
	return report
}

// The measurement of routes runs from the lab to the report, in small: it finds
// the right tables, and reports every quantity that others read, for both
// families.
func TestBenchECMP(t *testing.T) {
	report := runBench(t, "ecmp", "--quick", "--router", "bird", "--changes", "9", "--seed", "5")
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
	for _, name := range []string{"agent_restart_tcp_broken", "clean_stop_tcp_broken", "drain_tcp_broken"} {
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
	for _, name := range []string{"throughput_correlation", "servers_correlation", "response_correlation"} {
		if report.Ratios[name] <= 0 {
			t.Errorf("%s is %.2f, want more than 0", name, report.Ratios[name])
		}
	}
	if failed := found["requests_failed"][""]; failed.Runs != 1 || failed.Max != 0 {
		t.Errorf("requests failed: %+v", failed)
	}
	if len(report.Verdicts) == 0 || report.Verdicts[0].Value != 0 || !report.Verdicts[0].Holds {
		t.Errorf("verdicts %+v, want first that no table is wrong", report.Verdicts)
	}
}

// The measurement of broken connections runs from the lab to the report, in
// small. No change of backends breaks a connection, nor does the loss or the return of a
// balancer while there are none; the loss of one among changes may. With kube-proxy each
// loss and return breaks connections, and moves flows; changes lose no datagram but the answers that
// find their flow deleted.
func TestBenchChurn(t *testing.T) {
	report := runBench(t, "churn", "--connections", "60", "--changes", "24", "--seed", "5")
	results := map[string]bench.Result{}
	for _, r := range report.Results {
		results[r.Name] = r
	}
	type bounds struct{ least, most float64 }
	for _, phase := range []struct {
		suffix                            string
		changes, broken, moved, datagrams bounds
	}{
		{"_balancer_loss", bounds{0, 0}, bounds{0, 0}, bounds{0, 0}, bounds{0, 1e5}},
		{"_balancer_join", bounds{0, 0}, bounds{0, 0}, bounds{0, 0}, bounds{0, 1e5}},
		{"", bounds{24, 24}, bounds{0, 0}, bounds{0, 10}, bounds{0, 0}},
		{"_balancer_loss_changes", bounds{24, 24}, bounds{0, 1000}, bounds{0, 10}, bounds{0, 1e5}},
		{"_health", bounds{24, 24}, bounds{0, 0}, bounds{0, 10}, bounds{0, 1e5}}, // those to dead servers
		{"_kube_proxy_balancer_loss", bounds{0, 0}, bounds{10, 100}, bounds{0, 10}, bounds{0, 1e5}},
		{"_kube_proxy_balancer_join", bounds{0, 0}, bounds{10, 100}, bounds{0, 10}, bounds{0, 1e5}},
		{"_kube_proxy", bounds{24, 24}, bounds{0, 0}, bounds{0, 0}, bounds{0, results["answers_refused_kube_proxy"].Median}},
		{"_kube_proxy_balancer_loss_changes", bounds{24, 24}, bounds{10, 100}, bounds{0, 10}, bounds{0, 1e5}},
	} {
		for name, want := range map[string]bounds{
			"changes": phase.changes, "tcp_connections": {60, 1000}, "tcp_lines": {120, 1e5}, "tcp_broken": phase.broken,
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
	judged := []string{"tcp_broken_balancer_loss", "udp_moved_balancer_loss", "tcp_broken_balancer_join", "udp_moved_balancer_join", "tcp_broken", "tcp_broken_health"}
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

// The measurement of floods runs from the labs to the report, in small: a flood breaks no
// connection to another service.
func TestBenchFlood(t *testing.T) {
	report := runBench(t, "flood", "--quick", "--connections", "20")
	found := map[string]map[string]bench.Result{}
	for _, r := range report.Results {
		if balancer := r.Labels["balancer"]; found[balancer] == nil {
			found[balancer] = map[string]bench.Result{}
		}
		found[r.Labels["balancer"]][r.Name+r.Labels["flood"]] = r
	}
	for _, balancer := range []string{"nat", "nat with a limit", "nat, answered datagrams", "dsr", "dsr, answered datagrams", "l2dsr with records", "kernel"} {
		results := found[balancer]
		if results["forged_packets"].Median < 1000 {
			t.Errorf("%s: a flood of %.0f packets a second", balancer, results["forged_packets"].Median)
		}
		names := []string{"idle_broken", "others_failedno"}
		if !strings.Contains(balancer, "answered") { // those connect to no flooded service
			names = append(names, "flooded_failedno")
		}
		for _, name := range names {
			if r, there := results[name]; !there || r.Median != 0 {
				t.Errorf("%s: %s: %+v, want 0", balancer, name, r)
			}
		}
	}
	if len(report.Verdicts) != 12 {
		t.Errorf("%d verdicts, want two for each mode of Fairlead", len(report.Verdicts))
	}
	for _, v := range report.Verdicts {
		if !v.Holds {
			t.Errorf("verdict %+v", v)
		}
	}
}

// The measurement of links runs from the lab to the report, in small: a connection is as in the
// dissertation's tables, and no link carries more than its rate.
func TestBenchLimit(t *testing.T) {
	report := runBench(t, "limit", "--quick", "--cell", "^ipip$|^l2dsr$")
	predicted, captured := map[string]float64{}, map[string]float64{}
	links := 0
	for _, r := range report.Results {
		link := fmt.Sprint(r.Labels)
		switch r.Name {
		case "captured_packets":
			captured[r.Labels["direction"]+" "+r.Labels["kind"]] = r.Median
		case "predicted":
			predicted[link] = r.Median
		case "measured":
			links++
			if share := r.Median / predicted[link]; share <= 0 || share > 1.05 {
				t.Errorf("%s: %.0f of %.0f requests a second", link, r.Median, predicted[link])
			}
		}
	}
	if links != 2*2*4 {
		t.Errorf("%d links were shaped, want four for each of two modes and sizes", links)
	}
	for kind, want := range map[string]float64{"request syn": 1, "request data": 100, "answer syn": 1, "answer data": 200} {
		if captured[kind] != want {
			t.Errorf("%s: %.0f packets, want %.0f", kind, captured[kind], want)
		}
	}
	if len(report.Verdicts) != 2 {
		t.Errorf("%d verdicts, want one for each mode", len(report.Verdicts))
	}
}

// The measurement of requests runs from the labs to the report, in small: each part of the
// network takes processor time, and all parts together no more than there is.
func TestBenchHTTP(t *testing.T) {
	report := runBench(t, "http", "--quick", "--cell", "^cost, (nat|nginx)$|^throughput, nat, 8 ")
	cost, rate := map[string]float64{}, map[string]float64{}
	for _, r := range report.Results {
		switch r.Name {
		case "cost":
			if r.Min <= 0 {
				t.Errorf("cost of %v: %g", r.Labels, r.Min)
			}
			cost[r.Labels["way"]] += r.Median
		case "rate", "throughput":
			rate[r.Name+" "+r.Labels["way"]] = r.Median
		}
	}
	for _, way := range []string{"l2dsr", "nat", "iptables", "nginx"} { // two are references
		busy := cost[way] / 1e6 * rate["rate "+way]
		if busy <= 0 || busy > float64(runtime.NumCPU())*1.1 {
			t.Errorf("%s: %.1f requests a second take %.2f processors", way, rate["rate "+way], busy)
		}
	}
	if rate["throughput nat"] <= 0 {
		t.Error("no throughput of nat")
	}
	if len(report.Verdicts) == 0 || !report.Verdicts[0].Holds {
		t.Errorf("verdicts %+v, want first that no request failed", report.Verdicts)
	}
}

// The measurement of latency runs from the labs to the report, in small: over the host network
// and over VXLAN, each result of a cell is there.
func TestBenchLatency(t *testing.T) {
	report := runBench(t, "latency", "--quick", "--cell", "30 % of host, vxlan$")
	found := map[string]int{}
	for _, r := range report.Results {
		found[r.Labels["network"]+" "+r.Name]++
		if r.Labels["size"] != "350" || r.Labels["load"] != "30" || r.Labels["of"] != "host" {
			t.Errorf("%s: labels %v", r.Name, r.Labels)
		}
		if r.Name != "retransmitted" && r.Name != "busy" && r.Median <= 0 {
			t.Errorf("%s: %g, want more than 0", r.Name, r.Median)
		}
	}
	for _, name := range []string{"host rate", "host latency", "host busy", "host retransmitted", "host most", "vxlan most"} {
		if found[name] == 0 {
			t.Errorf("no result %s", name)
		}
	}
	if found["macvlan most"] != 0 {
		t.Error("a cell that wasn't chosen is measured")
	}
}
