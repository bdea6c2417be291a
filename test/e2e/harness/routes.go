// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
)

// Routed is the lab "ecmp" with three balancers behind a router that speaks BGP, and
// one server unless more are wanted.
func Routed(t *testing.T, o netlab.ECMPOptions) netlab.Topology {
	t.Helper()
	NeedRoot(t)
	o.Forward, o.Balancers, o.Servers = lb.L2DSR, 3, max(o.Servers, 1)
	if o.Router == netlab.GoBGP {
		o.GoBGPD = buildGoBGP(t)
	}
	topology, err := netlab.ECMP(o)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// buildGoBGP returns the gobgpd of tools/go.mod.
func buildGoBGP(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gobgpd")
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=../../../tools/go.mod", "-o", path, "github.com/osrg/gobgp/v4/cmd/gobgpd")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	return path
}

// Show runs a command against the agent of a balancer.
func (l *Lab) Show(t *testing.T, host string, args ...string) string {
	t.Helper()
	return Show(t, append(args, "--socket", l.State().Host(host).Socket)...)
}

// Routes returns the routes and peers of a balancer.
func (l *Lab) Routes(t *testing.T, host string) (r observe.Routes) {
	t.Helper()
	Decode(t, l.Show(t, host, "routes", "-o", "json"), &r)
	return r
}

// FRR runs a show command on the router and decodes its JSON.
func (l *Lab) FRR(t *testing.T, command string, into any) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "vtysh", "--vty_socket", l.State().Host("router").Directory, "-c", command+" json").Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// ReceivedRoutes returns the balancers whose route the router has received, by prefix.
func ReceivedRoutes(t *testing.T, l *Lab) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, family := range []string{"ipv4", "ipv6"} {
		var table struct {
			Routes map[string][]struct {
				Peer string `json:"peerId"`
			}
		}
		l.FRR(t, "show bgp "+family+" unicast", &table)
		for prefix, paths := range table.Routes {
			for _, h := range l.Hosts(netlab.Balancer) {
				for _, path := range paths {
					if path.Peer == l.Address(h.Name).String() {
						all[prefix] = append(all[prefix], h.Name)
					}
				}
			}
		}
	}
	return all
}
