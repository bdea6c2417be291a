// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// announced is the lab "ecmp" with a router of that kind; in the balancers
// others announce the VIPs, and none forwards.
func announced(t *testing.T, o ECMPOptions) Topology {
	t.Helper()
	o.Forward, o.Balancers, o.Servers = lb.L2DSR, 3, 1
	topology := drawn(t, ECMP, o)
	topology.Probes = nil
	for i := range topology.Hosts {
		switch h := &topology.Hosts[i]; h.Role {
		case Balancer:
			h.Files = map[string]string{exabgpConfig: exabgpText(h.Agent.BGP, h.Interfaces[0].Addresses, []netip.Prefix{hostPrefix(vips()[0]), hostPrefix(vips()[1])})}
			h.Processes = []Process{exabgp()}
		case Server:
			h.Processes = slices.DeleteFunc(h.Processes, func(p Process) bool { return p.Name != "exabgp" })
		default:
		}
	}
	return topology
}

// Routers of every kind merge the routes of several speakers, of both families,
// and forget one that stops. Their labs are side by side, with the same addresses.
func TestRoutersMergeRoutes(t *testing.T) {
	for name, options := range map[string]ECMPOptions{
		"frr":                  {Router: FRR},
		"frr dynamic":          {Router: FRR, Dynamic: true},
		"frr over ipv6":        {Router: FRR, PeerIPv6: true},
		"frr with a foreigner": {Router: FRR, Foreign: true},
		"bird":                 {Router: BIRD},
		"bird dynamic":         {Router: BIRD, Dynamic: true},
		"bird over ipv6":       {Router: BIRD, PeerIPv6: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			labs := newLabs(t)
			topology := announced(t, options)
			lab := bringUp(t, labs, topology)
			if err := lab.Stop(t.Context(), "lb2", "exabgp"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
			defer cancel()
			for _, learned := range topology.Learned {
				learned.Via = slices.DeleteFunc(slices.Clone(learned.Via), func(name string) bool { return name == "lb2" })
				if err := lab.AwaitRoute(ctx, learned); err != nil {
					t.Error(err)
				}
			}
			removeAll(t, labs, lab)
		})
	}
}
