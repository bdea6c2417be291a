// SPDX-License-Identifier: Apache-2.0

package http

import (
	"fmt"

	"fairlead.io/fairlead/lab/bench"
)

const (
	costRounds  = 7
	costServers = 4
	// costConnections keep all hosts busy, and are fewer packets than a queue takes.
	costConnections = 32
)

func costCell(way string) string { return "cost, " + way }

// cost adds the group that compares the cost of ways.
func (p *planned) cost(ways []way) error {
	one := testbed{servers: costServers, connections: costConnections}
	return p.group("cost of "+ways[0].name+" and others", costRounds, ways, one, costCell)
}

// reportCost adds the cost of all ways, with ratios and verdicts.
func reportCost(r *bench.Report, found bench.Found[finding]) error {
	for _, ways := range costGroups() {
		for _, w := range ways {
			for _, p := range parts {
				r.Add("cost", "µs/request", costOf(found, w.name, p), map[string]string{"way": w.name, "hosts": string(p)})
			}
			rate := runs(found[costCell(w.name)], func(f finding) float64 { return f.Rate })
			r.Add("rate", "requests/s", rate, map[string]string{"way": w.name})
		}
	}
	const chapter7, table72 = "chapter 7, processor time of balancers", "dissertation, table 7.2"
	for _, c := range []struct {
		name, a, b, source string
		least              float64 // 0: nothing is claimed
	}{
		{"iptables_over_l2dsr_cost", iptables, l2dsr, chapter7, 2},
		{"iptables_over_ipip_cost", iptables, ipip, chapter7, 1},
		{"nat_over_l2dsr_cost", nat, l2dsr, chapter7, 1},
		{"nat_over_iptables_cost", nat, iptables, "", 0},
		{"nginx_over_iptables_cost", nginx, iptables, bench.Documented, 2},
		{"haproxy_over_iptables_cost", haproxy, iptables, bench.Documented, 2},
		{"kube_proxy_over_dsr_cost", kubeProxyPods, dsrPods, "dissertation, section 3.1", 1},
		{"vxlan_over_host_gw_cost", vxlan, hostGateway, "dissertation, figure 5.4", 1},
		{"gue_pod_over_node_cost", gueInPod, gueOnNode, table72, 1},
		{"nat_pod_over_node_cost", natInPod, natOnNode, table72, 1},
	} {
		q := bench.Comparison{Name: c.name, A: costOf(found, c.a, balancers), B: costOf(found, c.b, balancers)}
		if c.least > 0 {
			q.Claim = fmt.Sprintf("balancers' processor time of a request: %s over %s", c.a, c.b)
			q.Source, q.Target = c.source, bench.AtLeast(c.least)
		}
		if err := r.Compare(q); err != nil {
			return err
		}
	}
	return nil
}

// costOf are the rounds of a way, nil if it wasn't measured.
func costOf(found bench.Found[finding], way string, p part) bench.Runs {
	return runs(found[costCell(way)], func(f finding) float64 { return f.Cost[p] })
}
