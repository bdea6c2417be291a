// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
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
// there before live on.
func TestMoveToAnotherSite(t *testing.T) {
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
	l := bringUp(t, "sites", topology)
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
	old := l.OpenClients(t, 40)
	alive := func(step string) {
		for _, c := range old {
			if err := c.Query(); err != nil {
				t.Fatalf("%s: a connection from before with %s: %v", step, c.Server, err)
			}
		}
	}
	w := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))

	configure(here.balancers, here.backends, 0)
	alive("servers known")
	configure(here.balancers, here.backends, 200)
	awaitVia(there.balancers)
	alive("routes moved")
	l.answeredBy(t, "server1", "server2")

	configure(there.balancers, there.backends, 100)
	configure(here.balancers, there.backends, 200)
	alive("servers drained")
	l.answeredBy(t, "server3", "server4")
	for _, name := range here.balancers {
		if err := l.Stop(t.Context(), name, "agent"); err != nil {
			t.Fatal(err)
		}
	}
	alive("first site's balancers stopped")
	awaitVia(there.balancers)
	w.End(t)
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
