// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// gateways are the names of the next hops of a route.
type gateways []string

// Prefixes of the VIPs of both families: served by all balancers, by some, and by
// the foreign speaker.
var (
	firstVIPs   = []string{harness.VIP4 + "/32", harness.VIP6 + "/128"}
	secondVIPs  = []string{"10.1.2.1/32", "fd00:10:1:2::1/128"}
	foreignVIPs = []string{"10.1.9.1/32", "fd00:10:1:9::1/128"}
)

// The upstream router's kernel has the tables of the dissertation (6.2 a, b and
// c), with every router, with and without the reflector, for both families.
func TestRouteTables(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD, netlab.GoBGP} {
		for _, reflector := range []bool{false, true} {
			name := string(router)
			if reflector {
				name += "-reflector"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				topology := harness.Routed(t, netlab.ECMPOptions{Router: router, Reflector: reflector, Second: 2})
				bringUp(t, name, topology).checkTables(t)
			})
		}
	}
}

// checkTables goes through the tables from the last one to the first.
func (l *lab) checkTables(t *testing.T) {
	// (c): two services with different sets of balancers.
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
	l.checkTable(t, secondVIPs, gateways{"lb1", "lb2"})
	// (b): one service with three balancers.
	l.Configure(t, slices.DeleteFunc(slices.Clone(l.Topology.Services), func(s lb.Service) bool {
		return s.Address != netip.MustParseAddr(harness.VIP4) && s.Address != netip.MustParseAddr(harness.VIP6)
	}))
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
	l.checkTable(t, secondVIPs, nil)
	// (a): a single balancer.
	others := []string{"lb2", "lb3"}
	for _, gone := range others {
		if err := l.Signal(t.Context(), gone, "agent", unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	l.checkTable(t, firstVIPs, gateways{"lb1"})
	// And back again.
	for _, back := range others {
		var err error
		if !await.Holds(func() bool { err = l.Restart(t.Context(), back, "agent"); return err == nil }) {
			t.Fatalf("%s has not ended: %v", back, err)
		}
	}
	l.checkTable(t, firstVIPs, gateways{"lb1", "lb2", "lb3"})
	l.checkTable(t, secondVIPs, nil)
}

// strayPrefixes are announced by the foreign speaker, too.
var strayPrefixes = []string{
	"0.0.0.0/0", "198.51.100.0/24", "198.51.100.1/32", "10.1.64.0/18", "::/0", "2001:db8:5::/48", "2001:db8:5::1/128", "fd00:10:1:5::/64",
}

// Another BGP speaker shares the router with the balancers, with its own VIPs and with
// theirs, and neither disturbs the other. Its other prefixes are not taken, and without the
// password nothing is.
func TestForeignSpeaker(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD, netlab.GoBGP} {
		t.Run(string(router), func(t *testing.T) {
			t.Parallel()
			l := bringUp(t, "foreign-"+string(router), patient(harness.Routed(t, netlab.ECMPOptions{Router: router, Foreign: true})))
			l.checkTable(t, firstVIPs, gateways{"exabgp", "lb1", "lb2", "lb3"})
			// FRR has ended a session of BFD 44 ms after it was up, when the lab came up on a busy machine.
			ended := l.flaps(t, "lb1", "lb3")
			l.checkTable(t, foreignVIPs, gateways{"exabgp"})
			l.checkTable(t, strayPrefixes, nil)
			l.checkUnsigned(t, "lb1", "router")
			if err := l.Stop(t.Context(), "lb2", "agent"); err != nil {
				t.Fatal(err)
			}
			l.checkTable(t, firstVIPs, gateways{"exabgp", "lb1", "lb3"})
			if err := l.Kill(t.Context(), "exabgp", "exabgp"); err != nil {
				t.Fatal(err)
			}
			l.checkTable(t, firstVIPs, gateways{"lb1", "lb3"})
			l.checkTable(t, foreignVIPs, nil)
			if now := l.flaps(t, "lb1", "lb3"); !slices.Equal(now, ended) {
				t.Errorf("the sessions of lb1 and lb3 have ended %v times, and %v times before", now, ended)
			}
		})
	}
}

// The router of the Kubernetes guide takes routes to VIPs and no others, with the password
// only. The lab's addresses replace the guide's.
func TestGuideRouter(t *testing.T) {
	t.Parallel()
	topology := harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR, Dynamic: true, Foreign: true})
	guide, err := os.ReadFile("../../../docs/guides/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(guide), "```frr router\n")
	text, _, _ = strings.Cut(text, "```")
	text = strings.NewReplacer(
		"172.30.0.254", "10.0.2.1", "172.30.0.0/24", "10.0.2.0/24", "203.0.113.0/24", "10.1.0.0/16", "2001:db8:113::/48", "fd00:10:1::/48",
	).Replace(text)
	sessions, bfd, found := strings.Cut(text, "\nbfd\n")
	if !found {
		t.Fatalf("no BFD in\n%s", text)
	}
	files := topology.Host("router").Files
	files["bgpd.conf"], files["bfdd.conf"] = sessions, "bfd\n"+bfd
	l := bringUp(t, "guide", topology)
	l.checkTable(t, firstVIPs, gateways{"exabgp", "lb1", "lb2", "lb3"})
	l.checkTable(t, foreignVIPs, gateways{"exabgp"})
	l.checkTable(t, strayPrefixes, nil)
	l.checkUnsigned(t, "lb1", "router")
}

// checkTable waits until the router's kernel has exactly these next hops, each
// with the same weight.
func (l *lab) checkTable(t *testing.T, prefixes []string, want gateways) {
	t.Helper()
	for _, prefix := range prefixes {
		if err := l.awaitRoute(t, netip.MustParsePrefix(prefix), want); err != nil {
			t.Errorf("%s: %v", l.State().Name, err)
		}
	}
}
