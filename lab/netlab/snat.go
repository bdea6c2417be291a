// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// The node of the lab "snat", its number in the service network, and the switch
// that its pods are on.
const (
	nodeName    = "node"
	nodeNumber  = 4
	clusterName = "cluster"
	// nodePods is the number of its network of pods.
	nodePods = 1
)

// translation is a node's rules: it translates the source of packets that leave it, as the
// network of a cluster does. Of its pods, which share its address, only balancer pods may
// connect to BGP speakers, which can't distinguish them: signatures (RFC 2385) cover
// addresses and ports.
func translation(pods ...netip.Addr) string { return render("translation.nft", pods) }

// SNATOptions are options of the lab "snat".
type SNATOptions struct {
	// Router is FRR, the default, or BIRD.
	Router RouterKind
	// Balancers is their number, 1 to MaxBalancers, Servers 1 to MaxServers.
	Balancers, Servers int
}

// SNAT is ECMP with balancers that are pods of one node of a container cluster.
// Each has the service network as eth0, on which it balances, and the cluster's
// network of pods as eth1. The node translates the source of packets from the pods to
// its own address, 10.0.2.4 (nftables masquerade): the reflector has a session with
// the same neighbour address for each pod.
//
//	client ── router ── switch ─┬─ reflector
//	                            ├─ node ── cluster ── lb1, lb2 … (eth1)
//	                            ├─ lb1, lb2 … (eth0)
//	                            └─ server1, server2 …
//
// The Nth pod is 10.0.2.(10+N) and, behind the node, 10.244.1.(1+N); it announces
// the former as next hop. Both families' routes use IPv4 sessions. BFD runs between the
// reflector and the router only: its packets carry no port that would bring the answer
// back through the node.
func SNAT(o SNATOptions) (Topology, error) {
	err := cmp.Or(within("snat", o.Balancers, "balancers", 1, MaxBalancers), within("snat", o.Servers, "servers", 1, MaxServers))
	if err != nil {
		return Topology{}, err
	}
	o.Router = cmp.Or(o.Router, FRR)
	if o.Router != FRR && o.Router != BIRD {
		return Topology{}, fmt.Errorf("topology snat: router %q: want frr or bird", o.Router)
	}
	n := translated{sited(ECMPOptions{
		Forward: lb.L2DSR, Balancers: o.Balancers, Servers: o.Servers, Router: o.Router, Reflector: true,
	})}
	n.translators = []int{nodeNumber}
	return n.draw(), nil
}

// translated is a site whose balancers are behind a node's address.
type translated struct{ site }

func (s *translated) draw() Topology {
	d := newDrawing("snat")
	s.site.draw(d)
	s.reflector(d)
	cluster := Host{Name: clusterName, Role: Switch}
	join := func(h *Host, i Interface) {
		h.Interfaces = append(h.Interfaces, i)
		cluster.Interfaces = append(cluster.Interfaces, Interface{Name: h.Name})
		d.Links = append(d.Links, Link{A: End{h.Name, i.Name}, B: End{clusterName, h.Name}})
	}
	var pods []netip.Addr
	for n := range s.Balancers {
		pods = append(pods, podAddresses(nodePods, podNumber+n)[0])
	}
	node := Host{Name: nodeName, Role: Router, Routes: defaultRoutes(serviceNetwork), Rules: translation(pods...)}
	d.plug(&node, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, nodeNumber)}, 0)
	join(&node, Interface{Name: eth1, Addresses: podNetworks(nodePods, 1)})
	d.Hosts = append(d.Hosts, node)
	for n := range s.Balancers {
		h := d.balancer(n+1, 0)
		join(h, Interface{Name: eth1, Addresses: podNetworks(nodePods, podNumber+n)})
		h.Routes = append(defaultRoutes(serviceNetwork), Route{
			Destination: hostPrefix(s.address(reflectorNumber)), Gateways: podAddresses(nodePods, 1)[:1],
		})
		h.Agent.BGP = s.announcer(n + 1)
	}
	d.Hosts = append(d.Hosts, cluster)
	return d.finish()
}

// announcer is the nth pod's BGP configuration. Its session uses the other interface,
// so its next hops are configured.
func (s *translated) announcer(n int) *bgp.Config {
	c := s.peering.announcer(balancerNumber+n, true)
	own := addresses(serviceNetwork, balancerNumber+n)
	c.Policies = []bgp.Policy{{Prefixes: hostPrefixes(vips()), NextHop4: own[0], NextHop6: own[1]}}
	return c
}
