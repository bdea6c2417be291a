// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// VIPs that arrive in a VLAN are announced with the balancers' addresses in it, over a session in
// the untagged network. Another tenant has the same VIPs in another VLAN, which isn't announced.
func TestVLANRoutes(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "vlan-routes", routedVLAN())
	t.Run("tenants", func(t *testing.T) {
		l.CheckPackets(t, "forward_l2dsr", func() {
			for _, tenant := range []string{"red", "blue"} {
				for _, vip := range []string{harness.VIP4, harness.VIP6} {
					l.checkTenant(t, tenant, vip)
				}
			}
		})
	})
	t.Run("drained", func(t *testing.T) {
		load := l.Load(t, "client-red", harness.LoadLimit, harness.Origin(harness.VIP4))
		for _, step := range []struct {
			command string
			via     []string
		}{{"drain", []string{"lb2"}}, {"undrain", []string{"lb1", "lb2"}}} {
			l.Show(t, "lb1", step.command, "node")
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			for _, vip := range []string{harness.VIP4, harness.VIP6} {
				if err := l.AwaitRoute(ctx, netlab.LearnedRoute{Host: "router-red", Prefix: hostRoute(vip), Via: step.via}); err != nil {
					t.Error(err)
				}
			}
			cancel()
		}
		load.End(t)
	})
	t.Run("blue alone", func(t *testing.T) {
		for _, service := range []string{"web-red", "echo-red"} {
			l.Show(t, "lb1", "drain", "service", service)
		}
		harness.Until(t, "the reason is that of the red services", func() bool {
			line := lineOf(l.Show(t, "lb1", "routes"), harness.VIP4+"/32")
			return strings.Contains(line, "web-red: drained") && !strings.Contains(line, "blue")
		})
		l.checkTenant(t, "blue", harness.VIP4)
	})
}

// checkTenant has a tenant's client send requests, which that tenant's servers answer.
func (l *lab) checkTenant(t *testing.T, tenant, vip string) {
	t.Helper()
	answers := l.Gets(t, "client-"+tenant, harness.Origin(vip), 60)
	for name := range answers {
		if !strings.HasPrefix(name, "server-"+tenant) {
			t.Errorf("%s: %s is answered by %v", tenant, vip, answers)
		}
	}
}

// routedVLAN is netlab.VLAN with a red router that learns its routes: it speaks BGP (FRR) with the
// balancers in another network, 10.0.8.0/24, which is untagged.
func routedVLAN() netlab.Topology {
	const vlan, asn, peerASN = 100, 65021, 65000
	topology := netlab.VLAN()
	session := func(number int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 8, byte(number)}), 24)
	}
	prefixes := []bgp.Acceptance{
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Shortest: 32}, {Prefix: netip.MustParsePrefix("fd00:10:1::/48"), Shortest: 128},
	}
	var names []string
	var neighbours []netip.Addr
	for i := range topology.Hosts {
		h := &topology.Hosts[i]
		if h.Role != netlab.Balancer {
			continue
		}
		names = append(names, h.Name)
		eth0 := &h.Interfaces[0]
		tagged := slices.Clone(eth0.Addresses) // of the VLAN too: the router has a neighbour entry
		own := session(10 + len(names))
		eth0.Addresses = append(eth0.Addresses, own)
		neighbours = append(neighbours, own.Addr())
		h.Agent.BGP = &bgp.Config{
			Local: bgp.Local{ASN: asn, RouterID: own.Addr()}, ShutdownDelay: 500 * time.Millisecond,
			Peers: []bgp.Peer{{
				Address: session(1).Addr(), ASN: peerASN, HoldTime: bgp.DefaultHoldTime, RestartTime: bgp.DefaultRestartTime, BFD: &bgp.DefaultBFD,
			}},
			Policies: []bgp.Policy{{
				Prefixes: []netip.Prefix{prefixes[0].Prefix, prefixes[1].Prefix}, VLAN: vlan, NextHop4: tagged[0].Addr(), NextHop6: tagged[1].Addr(),
			}},
		}
	}
	router := topology.Host("router-red")
	router.Routes = nil
	router.Interfaces = append(router.Interfaces, netlab.Interface{Name: "eth2", Addresses: []netip.Prefix{session(1)}})
	netlab.BGPRouter{
		ASN: peerASN, RouterID: session(1).Addr(), PeerASN: asn, Neighbours: neighbours, VIPs: prefixes,
	}.FRR(router)
	port := "red-bgp"
	topology.Host("switch").Interfaces = append(topology.Host("switch").Interfaces, netlab.Interface{Name: port})
	topology.Links = append(topology.Links, netlab.Link{
		A: netlab.End{Host: router.Name, Interface: "eth2"}, B: netlab.End{Host: "switch", Interface: port},
	})
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		topology.Learned = append(topology.Learned, netlab.LearnedRoute{Host: router.Name, Prefix: hostRoute(vip), Via: names})
	}
	return topology
}
