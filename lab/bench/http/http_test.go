// SPDX-License-Identifier: Apache-2.0

package http

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// Each way has a topology, cells have different names, and --quick measures some of them.
func TestPlan(t *testing.T) {
	names := map[bool][]string{}
	for _, quick := range []bool{false, true} {
		p := planned{Config: Config{Name: "http", Config: bench.Config{Quick: quick}}}
		if err := p.plan(); err != nil {
			t.Fatal(err)
		}
		for _, g := range p.groups {
			for _, c := range g.Cells {
				if slices.Contains(names[quick], c.Name) {
					t.Errorf("cell %s is there twice", c.Name)
				}
				names[quick] = append(names[quick], c.Name)
			}
		}
	}
	for _, name := range []string{"cost, nat", "cost, haproxy", "cost, dsr to pods", "cost, gue in a pod", "throughput, nginx, 40 servers"} {
		if !slices.Contains(names[false], name) {
			t.Errorf("no cell %s", name)
		}
	}
	for _, name := range names[true] {
		if !slices.Contains(names[false], name) {
			t.Errorf("only --quick measures %s", name)
		}
	}
	if n := len(names[true]); n < 4 || n > 12 {
		t.Errorf("--quick measures %d cells", n)
	}
}

// A device takes the place of Fairlead on all balancers, and nothing else of the lab changes.
func TestTopology(t *testing.T) {
	for _, w := range slices.Concat(costGroups()...) {
		topology, err := w.topology(3)
		if err != nil {
			t.Fatal(err)
		}
		agents := 0
		for _, h := range topology.Hosts {
			if h.Agent != nil {
				agents++
			}
			for _, p := range h.Processes {
				if p.Name == "echo" {
					t.Errorf("%s: host %s has a service of UDP", w.name, h.Name)
				}
			}
		}
		if (agents == 0) != (w.file != "") || len(topology.Services) != 1 || len(topology.Probes) != 1 {
			t.Errorf("%s: %d agents, %d services, %d probes", w.name, agents, len(topology.Services), len(topology.Probes))
		}
	}
}

func TestParts(t *testing.T) {
	for name, want := range map[string]part{"client": client, "router": network, "switch": network, "lb1": balancers, "lb2": balancers, "pod1-1": servers, "pod2-2": servers} {
		topology, err := toPods()[3].topology(0)
		if err != nil {
			t.Fatal(err)
		}
		h := topology.Host(name)
		if got := partOf(&netlab.HostState{Name: h.Name, Role: h.Role}); got != want {
			t.Errorf("%s is counted as %s, want %s", name, got, want)
		}
	}
}

// Rules choose each server with the same probability.
func TestRender(t *testing.T) {
	service := lb.Service{VIP: lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}}
	for _, address := range []string{"10.0.2.101", "10.0.2.102", "10.0.2.103"} {
		service.Backends = append(service.Backends, lb.Backend{Address: netip.MustParseAddr(address), Port: 8080})
	}
	for file, lines := range map[string][]string{
		"dnat.iptables": {
			"-A PREROUTING -d 10.1.1.1 -p tcp --dport 80 -m statistic --mode random --probability 0.3333333333 -j DNAT --to-destination 10.0.2.101:8080",
			"-A PREROUTING -d 10.1.1.1 -p tcp --dport 80 -m statistic --mode random --probability 0.5000000000 -j DNAT --to-destination 10.0.2.102:8080",
			"-A PREROUTING -d 10.1.1.1 -p tcp --dport 80 -j DNAT --to-destination 10.0.2.103:8080",
		},
		"kube-proxy.iptables": {
			`-A KUBE-SVC-WEB -m comment --comment "bench/web:http -> 10.0.2.102:8080" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-1`,
			`-A KUBE-SVC-WEB -m comment --comment "bench/web:http -> 10.0.2.103:8080" -j KUBE-SEP-2`,
			"-A KUBE-SEP-2 -m comment --comment bench/web:http -m tcp -p tcp -j DNAT --to-destination 10.0.2.103:8080",
		},
		"nginx.conf":  {"    server 10.0.2.103:8080;"},
		"haproxy.cfg": {"  server s2 10.0.2.103:8080"},
	} {
		text := strings.Split(render(file, service), "\n")
		for _, line := range lines {
			if !slices.Contains(text, line) {
				t.Errorf("%s lacks %q:\n%s", file, line, strings.Join(text, "\n"))
			}
		}
	}
}

// Ratios are of the balancers' cost, and of throughput with most servers.
func TestReport(t *testing.T) {
	cost := func(µs float64) []finding {
		return []finding{{Rate: 100, Cost: map[part]float64{client: 1, network: 2, balancers: µs, servers: 3}}}
	}
	found := bench.Found[finding]{costCell(l2dsr): cost(2), costCell(iptables): cost(10), costCell(nat): cost(4)}
	for _, n := range serverNumbers(false) {
		rate := 100 * float64(min(n, 12))
		found[throughputCell(nat, n)] = []finding{{Rate: rate, Sent: 100, Received: 200, Failed: 1}}
		found[throughputCell(ipip, n)] = []finding{{Rate: 100 * float64(min(n, 18))}}
	}
	r := &bench.Report{Ratios: map[string]float64{}}
	if err := report(r, found); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"iptables_over_l2dsr_cost": 5, "nat_over_l2dsr_cost": 2, "nat_over_iptables_cost": 0.4,
		"ipip_over_nat_throughput": 1.5, "ipip_over_nat_by_bytes": 1.5, "nat_saturated": 1, "nat_servers_correlation": 1,
	} {
		if got := r.Ratios[name]; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	if len(r.Ratios) != 8 { // and ipip's correlation
		t.Errorf("ratios %v", r.Ratios)
	}
	for _, v := range r.Verdicts {
		if v.Holds == (v.Claim == "requests that failed") {
			t.Errorf("verdict %+v", v)
		}
	}
}
