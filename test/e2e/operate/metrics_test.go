// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// balancers is how many the lab has.
const balancers = 3

// A real Prometheus scrapes agents; the dashboard and the alerts of deploy/ can do something
// with it. TestExposition of internal/observe/web has all metrics and their values.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	topology := harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR, Servers: 4})
	targets := observed(t, &topology)
	l := bringUp(t, "metrics", topology)
	m := l.watch(t, "lb1", targets)

	w := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
	t.Run("dashboard", m.checkDashboard)
	w.End(t)
	t.Run("router gone", m.checkRouterGone)
	t.Run("dead server", m.checkDeadServer)
	t.Run("dead agent", m.checkDeadAgent)
}

// observed lets web servers be probed, and all agents but the first, which is
// where Prometheus runs, listen on an address that others reach. It returns where
// the agents are scraped.
func observed(t *testing.T, topology *netlab.Topology) (targets []string) {
	t.Helper()
	for i := range topology.Hosts {
		h := &topology.Hosts[i]
		if h.Role != netlab.Balancer {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", harness.PagePort)
		text := strings.ReplaceAll(h.Agent.YAML(), "    protocol: tcp\n",
			"    protocol: tcp\n    health: {type: http, path: /, interval: 200ms, timeout: 200ms, fall: 2}\n")
		if len(targets) > 0 {
			address = net.JoinHostPort(h.Interfaces[0].Addresses[0].Addr().String(), harness.PagePort)
			text += fmt.Sprintf("observe: {listen: %q}\n", address)
		}
		h.Files = map[string]string{netlab.AgentFile: text}
		targets = append(targets, address)
	}
	return targets
}

// ofKubernetes are metrics that the lab's agents don't have.
var ofKubernetes = regexp.MustCompile("fairlead_(kubernetes|controller|pool)_")

// checkDashboard runs every query of the dashboard under load; each shows
// something, except for metrics of Kubernetes.
func (m *monitor) checkDashboard(t *testing.T) {
	harness.Until(t, "Prometheus has seen traffic", func() bool { return m.sum(t, `sum(rate(fairlead_service_packets_total[10s]))`) > 100 })
	queries := dashboardQueries(t)
	if len(queries) < 30 {
		t.Errorf("%d queries", len(queries))
	}
	for _, q := range queries {
		samples, err := m.query(t.Context(), q)
		if err != nil || len(samples) == 0 && !ofKubernetes.MatchString(q) {
			t.Errorf("%s: %d samples, %v", q, len(samples), err)
		}
	}
	for _, busy := range []string{
		`sum(rate(fairlead_service_bytes_total[10s]))`, `sum(rate(fairlead_backend_packets_total[10s]))`,
		`sum(rate(fairlead_dataplane_packets_total{exit="forward_l2dsr"}[10s]))`, `sum(fairlead_service_new_flows_total)`,
	} {
		if got := m.sum(t, busy); got <= 0 {
			t.Errorf("%s is %v under load", busy, got)
		}
	}
}

// dashboardQueries are the expressions of the dashboard, with its variables
// replaced as Grafana does when everything is chosen.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "grafana", "fairlead.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	var queries []string
	variables := strings.NewReplacer("$instance", ".+", "$service", ".+", "$__rate_interval", "10s")
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			query := variables.Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s: an unknown variable", query)
			}
			queries = append(queries, query)
		}
	}
	return queries
}

// last is an expression for the last value of metrics. On a busy machine a scrape may take longer
// than it may: there is no present value then.
func last(selector string) string { return "last_over_time(" + selector + "[1m])" }

// ofNode restricts an expression in front of it to the agent of a node.
func ofNode(name string) string {
	return " and on (instance) " + last(fmt.Sprintf("fairlead_build_info{node=%q}", name))
}

// A router that is gone is an alert of every balancer, until it is back.
func (m *monitor) checkRouterGone(t *testing.T) {
	m.awaitAlert(t, "FairleadAllPeersDown", 0)
	if err := m.lab.Stop(t.Context(), "router", "bgpd"); err != nil {
		t.Fatal(err)
	}
	m.awaitAlert(t, "FairleadAllPeersDown", balancers)
	m.awaitAlert(t, "FairleadSessionDown", balancers, fmt.Sprintf("peer=%q", m.lab.Address("router")))
	if err := m.lab.Start(t.Context(), "router", m.lab.Process(t, "router", "bgpd")); err != nil {
		t.Fatal(err)
	}
	m.awaitAlert(t, "FairleadAllPeersDown", 0)
	m.awaitAlert(t, "FairleadSessionDown", 0)
	harness.Until(t, "the routes are back", func() bool { return len(harness.ReceivedRoutes(t, m.lab.Lab)[harness.VIP4+"/32"]) == balancers })
}

// A server that dies is an alert of every balancer, until it is back.
func (m *monitor) checkDeadServer(t *testing.T) {
	const server = "server1"
	m.awaitAlert(t, "FairleadBackendUnhealthy", 0)
	if err := m.lab.Stop(t.Context(), server, "nginx"); err != nil {
		t.Fatal(err)
	}
	address := m.lab.Topology.Host(server).Interfaces[0].Addresses[0].Addr()
	backend := fmt.Sprintf("backend=%q", net.JoinHostPort(address.String(), "80"))
	m.awaitAlert(t, "FairleadBackendUnhealthy", balancers, `service="web"`, backend)
	if got := m.sum(t, "min("+last(`fairlead_service_backends_unhealthy{service="web"}`)+")"); got != 1 {
		t.Errorf("%.0f backends of web are unhealthy, want 1", got)
	}
	if err := m.lab.Restart(t.Context(), server, "nginx"); err != nil {
		t.Fatal(err)
	}
	m.awaitAlert(t, "FairleadBackendUnhealthy", 0)
}

// So is an agent that dies; the kernel continues forwarding, and the next agent continues
// its counters.
func (m *monitor) checkDeadAgent(t *testing.T) {
	const packets = `fairlead_service_packets_total{service="web"}`
	ofIt := ofNode("lb3")
	before := m.sum(t, last(packets)+ofIt)
	h := m.lab.State().Host("lb3")
	m.lab.KillAgent(t, h, "agent")
	m.awaitAlert(t, "FairleadAgentDown", 1)
	m.lab.Gets(t, "client", harness.Origin(harness.VIP4), 10)
	m.lab.StartAgent(t, h)
	m.awaitAlert(t, "FairleadAgentDown", 0)
	m.scraped(t)
	if after := m.sum(t, last(packets)+ofIt); before < 1 || after < before {
		t.Errorf("%.0f packets before the agent was killed, %.0f after", before, after)
	}
	if got := m.sum(t, "resets("+packets+"[5m])"+ofIt); got != 0 {
		t.Errorf("the counter was reset %.0f times", got)
	}
}
