// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// BalancerPodsOptions are options of the lab "balancer-pods".
type BalancerPodsOptions struct {
	// Forward is lb.GUE, the default, or lb.NAT. Nodes can't translate the sources of IPIP
	// packets of several pods to one server: they have no ports.
	Forward lb.Forward
	// Nodes is the number of nodes with balancer pods, 1 to MaxBalancers - 1; Second of
	// them, the last ones, have a balancer pod of the second VIPs too.
	Nodes, Second int
	// Servers is their number, 1 to MaxServers.
	Servers int
}

// BalancerPods is ECMP with balancers that are pods with an address of their node's network
// of pods only, as in figure 4.5 of Takahashi's dissertation. A pod announces the prefix of
// its VIPs to the route reflector with its node's address as next hop; the node has a route
// to the prefix by way of the pod, and translates the source of the pod's packets. Each pod
// serves one pair of VIPs. One more node has its balancer in its own namespace (figure 7.4).
//
//	client ── router ── switch ─┬─ reflector
//	                            ├─ node1 ── web1
//	                            ├─ node2 ─┬─ web2
//	                            │         └─ second1
//	                            ├─ lb3
//	                            └─ server1, server2 …
//
// The Nth node is 10.0.2.(10+N); its pods are 10.244.N.2 and 10.244.N.3, and their
// interfaces keep their offloads, as container runtimes leave them. The pods run XDP in
// generic mode: native XDP needs a program on the node's end of the link. Services are
// the same as ECMP's; they are announced as 10.1.1.0/24 and fd00:10:1:1::/64, and
// 10.1.2.0/24 and fd00:10:1:2::/64.
func BalancerPods(o BalancerPodsOptions) (Topology, error) {
	const name = "balancer-pods"
	err := cmp.Or(
		within(name, o.Nodes, "nodes", 1, MaxBalancers-1),
		within(name, o.Second, "nodes with pods of the second VIPs", 0, o.Nodes),
		within(name, o.Servers, "servers", 1, MaxServers))
	if err != nil {
		return Topology{}, err
	}
	forward := cmp.Or(o.Forward, lb.GUE)
	if forward != lb.GUE && forward != lb.NAT {
		return Topology{}, fmt.Errorf("topology %s: forwarding mode %s: want gue or nat", name, forward)
	}
	s := podBalancers{sited(ECMPOptions{
		Forward: forward, Balancers: o.Nodes + 1, Servers: o.Servers, Second: o.Second, MTU: tunnelMTU,
		Router: FRR, Reflector: true, Networks: true,
	})}
	s.direct = []int{balancerNumber + o.Nodes + 1}
	for n := range o.Nodes {
		s.translators = append(s.translators, balancerNumber+n+1)
	}
	return s.draw(), nil
}

// podBalancers is a site whose balancers are pods, but for the last one.
type podBalancers struct{ site }

func (s *podBalancers) draw() Topology {
	d := newDrawing("balancer-pods")
	s.site.draw(d)
	d.Learned = nil // by nodes
	s.reflector(d)
	nodes := s.Balancers - 1
	for n := 1; n <= nodes; n++ {
		node := Host{
			Name: fmt.Sprintf("node%d", n), Role: Router, Routes: defaultRoutes(serviceNetwork),
			Rules: translation(podAddresses(n, podNumber)[0], podAddresses(n, podNumber+1)[0]),
		}
		d.plug(&node, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, balancerNumber+n)}, s.MTU)
		d.Hosts = append(d.Hosts, node)
		s.pod(d, n, 1, fmt.Sprintf("web%d", n))
		if second := n - (nodes - s.Second); second > 0 {
			s.pod(d, n, 2, fmt.Sprintf("second%d", second))
		}
	}
	own := d.balancer(s.Balancers, s.MTU)
	own.Routes = defaultRoutes(serviceNetwork)
	s.serve(d, own, 1, balancerNumber+s.Balancers)
	s.learn(d, 1, own.Name)
	return d.finish()
}

// pod draws the nth node's pod for the kth pair of VIPs, and the node's route to it.
func (s *podBalancers) pod(d *drawing, n, k int, name string) {
	own, gateway := podAddresses(n, 1+k), podAddresses(n, 1)
	h := Host{
		Name: name, Role: Balancer, Processes: []Process{agent()}, Socket: agentSocket,
		Agent: &AgentSettings{Node: name, XDPMode: "generic"},
	}
	h.Interfaces = []Interface{{Name: eth0, Container: true, Addresses: hostPrefixes(own)}}
	h.Routes = defaultVia(gateway, eth0)
	device := fmt.Sprintf("veth%d", k)
	node := d.Host(fmt.Sprintf("node%d", n))
	node.Interfaces = append(node.Interfaces, Interface{Name: device, Container: true, Addresses: hostPrefixes(gateway)})
	for family, vips := range vipNetworks(k) {
		node.Routes = append(node.Routes,
			Route{Destination: hostPrefix(own[family]), Device: device},
			Route{Destination: vips, Gateways: own[family : family+1], Device: device})
	}
	s.serve(d, &h, k, balancerNumber+n)
	h.Agent.BGP.RouterID = own[0] // pods of one node have its address in common
	d.Links = append(d.Links, Link{A: End{node.Name, device}, B: End{name, eth0}, MTU: s.MTU})
	d.Hosts = append(d.Hosts, h)
	s.learn(d, k, fmt.Sprintf("node%d", n))
}

// serve makes a host the balancer of the kth pair of VIPs, announced with the next hops of a
// number in the service network.
func (s *podBalancers) serve(d *drawing, h *Host, k, number int) {
	h.Agent.Services = d.servicesAt(vipsOf(k))
	hops := addresses(serviceNetwork, number)
	h.Agent.BGP = s.announcer(number, h.Agent.Node != balancerName(s.Balancers))
	h.Agent.BGP.Policies = []bgp.Policy{{Prefixes: vipNetworks(k), Aggregate: true, NextHop4: hops[0], NextHop6: hops[1]}}
}

// learn adds a next hop to the router's routes to the kth pair of VIPs.
func (s *podBalancers) learn(d *drawing, k int, hop string) {
	for _, prefix := range vipNetworks(k) {
		known := find(d.Learned, func(r *LearnedRoute) bool { return r.Prefix == prefix })
		if known == nil {
			d.Learned = append(d.Learned, LearnedRoute{Host: s.named("router"), Prefix: prefix})
			known = &d.Learned[len(d.Learned)-1]
		}
		known.Via = append(known.Via, hop)
	}
}

// Lengths of prefixes that are announced for several VIPs.
const (
	vipNetworkBits4 = 24
	vipNetworkBits6 = 64
)

// vipNetworks are the prefixes of the nth pair of VIPs: 10.1.N.0/24 and fd00:10:1:N::/64.
func vipNetworks(n int) []netip.Prefix {
	vips := vipsOf(n)
	return []netip.Prefix{
		netip.PrefixFrom(vips[0], vipNetworkBits4).Masked(), netip.PrefixFrom(vips[1], vipNetworkBits6).Masked(),
	}
}
