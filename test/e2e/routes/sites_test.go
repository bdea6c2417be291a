// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
	"fairlead.io/fairlead/test/measured"
)

// sites are the two sites of TestMoveToAnotherSite: balancers, and which of the services' backends are there.
var sites = [2]struct {
	balancers []string
	backends  [4]int // weights
}{
	{[]string{"lb1", "lb2"}, [4]int{1, 1, 0, 0}},
	{[]string{"lb3", "lb4"}, [4]int{0, 0, 1, 1}},
}

// A service moves to another site as docs/guides/sites.md says: balancers of both sites get the servers of both,
// then the routes move, then new connections go to the other servers. No request is lost, and connections that were
// there before live on. With -reports the other order is measured, too.
func TestMoveToAnotherSite(t *testing.T) {
	lost, broken := moveSite(t, true)
	if lost+broken > 0 {
		t.Errorf("%d requests were lost, %d connections broken", lost, broken)
	}
	measured.Write(t, "../../..", "sites", func(r *bench.Report) {
		lost, broken := bench.Runs{float64(lost)}, bench.Runs{float64(broken)}
		r.Judge("requests lost and connections broken when routes move before servers", bench.Documented, bench.AtMost(0), lost.Sum()+broken.Sum())
		for routesFirst, order := range map[bool]string{true: "routes, servers", false: "servers, routes"} {
			if !routesFirst {
				l, b := moveSite(t, routesFirst)
				lost, broken = bench.Runs{float64(l)}, bench.Runs{float64(b)}
			}
			r.Add("lost", "requests", lost, map[string]string{"order": order})
			r.Add("broken", "connections of 80", broken, map[string]string{"order": order})
		}
	})
}

// moveSite moves a service under load, routes or servers first, and returns how many requests on new connections were
// lost, and how many connections were broken of 40 from before and 40 that begin between the two steps.
func moveSite(t *testing.T, routesFirst bool) (lost, broken int) {
	t.Helper()
	topology, err := netlab.Cloud(netlab.CloudOptions{Forward: lb.GUE, Balancers: 4, Servers: 4, Router: netlab.FRR})
	if err != nil {
		t.Fatal(err)
	}
	here, there := sites[0], sites[1]
	for _, name := range here.balancers {
		settings := topology.Host(name).Agent
		settings.Services = weighted(topology.Services, here.backends)
		for i := range settings.Services {
			settings.Services[i].Backends = settings.Services[i].Backends[:2]
		}
	}
	for _, name := range there.balancers {
		*topology.Host(name).Agent = withMED(*topology.Host(name).Agent, weighted(topology.Services, here.backends), 100)
	}
	for i := range topology.Learned {
		topology.Learned[i].Via = here.balancers
	}
	topology.Probes = nil
	l := bringUp(t, fmt.Sprintf("sites-%t", routesFirst), topology)
	awaitVia := func(balancers []string) {
		l.awaitRouteOf(t, harness.VIP4, balancers...)
		l.awaitRouteOf(t, harness.VIP6, balancers...)
	}
	configure := func(balancers []string, weights [4]int, med uint32) {
		for _, name := range balancers {
			if err := l.State().Host(name).Configure(t.Context(), withMED(*topology.Host(name).Agent, weighted(topology.Services, weights), med)); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitVia(here.balancers)
	open := l.OpenClients(t, 40)
	ask := func(step string) {
		open = slices.DeleteFunc(open, func(c *harness.Client) bool {
			err := c.Query()
			if err != nil {
				broken++
				t.Logf("%s: a connection with %s: %v", step, c.Server, err)
			}
			return err != nil
		})
	}
	w := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))

	configure(here.balancers, here.backends, 0)
	ask("servers known")
	moveRoutes := func(weights [4]int) {
		configure(here.balancers, weights, 200)
		awaitVia(there.balancers)
		ask("routes moved")
	}
	drainServers := func(med uint32) {
		configure(there.balancers, there.backends, 100)
		configure(here.balancers, there.backends, med)
		l.answeredBy(t, "server3", "server4")
		ask("servers drained")
	}
	if routesFirst {
		moveRoutes(here.backends)
		l.answeredBy(t, "server1", "server2")
		open = append(open, l.OpenClients(t, 40)...)
		drainServers(200)
	} else {
		drainServers(0)
		open = append(open, l.OpenClients(t, 40)...)
		moveRoutes(there.backends)
	}
	for _, name := range here.balancers {
		if err := l.Stop(t.Context(), name, "agent"); err != nil {
			t.Fatal(err)
		}
	}
	ask("first site's balancers stopped")
	awaitVia(there.balancers)
	w.Interrupt(t)
	result := w.Result(t)
	return result.Broken() + result.NotOK, broken
}

// weighted returns the services with these weights of their backends.
func weighted(services []lb.Service, weights [4]int) []lb.Service {
	services = slices.Clone(services)
	for i := range services {
		services[i].Backends = slices.Clone(services[i].Backends)
		for at := range services[i].Backends {
			services[i].Backends[at].Weight = weights[at]
		}
	}
	return services
}

// withMED returns the settings with other services, whose routes have this MED (RFC 4271).
func withMED(settings netlab.AgentSettings, services []lb.Service, med uint32) netlab.AgentSettings {
	announces := *settings.BGP
	announces.Policies = []bgp.Policy{{
		Prefixes:   []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:10:1::/48")},
		Attributes: bgp.Attributes{MED: &med},
	}}
	settings.BGP = &announces
	return settings.With(services)
}

// answeredBy checks that new connections are answered by these servers, by each of them.
func (l *lab) answeredBy(t *testing.T, servers ...string) {
	t.Helper()
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		answers := l.Gets(t, "client", harness.Origin(vip), 40)
		for _, server := range servers {
			if answers[server] == 0 || len(answers) != len(servers) {
				t.Errorf("%s: answers by %v, want %v", vip, answers, servers)
			}
		}
	}
}
