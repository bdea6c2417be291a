// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// podsPerNode is how many pods each node of the lab "nodes" has.
const podsPerNode = 2

// podBridge is the bridge that joins the pods of a node, by the name that the
// Kubernetes network plugin "bridge" gives it.
const podBridge = "cni0"

// NodesOptions are options of the lab "nodes".
type NodesOptions struct {
	// Nodes is their number, 1 to MaxBalancers.
	Nodes int
	// Forward is lb.NAT, the default, or lb.DSR.
	Forward lb.Forward
	// OwnPods gives each node only its own pods as backends.
	OwnPods bool
	// FilterPods is AgentSettings.FilterPods of all nodes.
	FilterPods bool
	// Beyond puts the last node behind the router, in a network of its own.
	Beyond bool
}

// Nodes is ECMP with nodes of a container cluster that are balancers and workers
// at once: two pods of each are the backends. Nodes of odd numbers lead to each
// pod by a pair of interfaces and a route to its address, as the network plugin
// "ptp" makes them; nodes of even numbers have a bridge, as "bridge" makes it. To
// other nodes' pods there are routes by way of their nodes.
//
//	client ── router ── switch ─┬─ lb1 ─┬─ pod1-1
//	                            │       └─ pod1-2
//	                            └─ lb2 ── cni0 ─┬─ pod2-1
//	                                            └─ pod2-2
//
// The Kth pod of the Nth node is 10.244.N.(1+K) and fd00:244:N::(1+K). Interfaces
// between pods and nodes keep their offloads, as container runtimes leave them: pods
// send packets without checksum, which are segmented where they leave the node. Nodes
// drop packets of connections that netfilter hasn't tracked from the start, as
// kube-proxy does. With lb.DSR agents are configured with the nodes of other nodes'
// pods. The network of a node beyond is 10.0.4.0/24 and
// fd00:4::/64.
func Nodes(o NodesOptions) (Topology, error) {
	if err := within("nodes", o.Nodes, "nodes", 1, MaxBalancers); err != nil {
		return Topology{}, err
	}
	n := nodes{cluster{site: sited(ECMPOptions{
		Forward: cmp.Or(o.Forward, lb.NAT), Balancers: o.Nodes, Servers: o.Nodes * podsPerNode,
	})}, o}
	return n.draw(), nil
}

// nodes is a site whose servers are pods of its balancers.
type nodes struct {
	cluster
	options NodesOptions
}

// network is the nth node's.
func (c *nodes) network(n int) int {
	if c.options.Beyond && n == c.Balancers {
		return beyondNetwork
	}
	return serviceNetwork
}

// addresses are the nth node's.
func (c *nodes) addresses(n int) []netip.Addr { return addresses(c.network(n), balancerNumber+n) }

func (c *nodes) draw() Topology {
	d := newDrawing("nodes")
	c.client(d)
	c.router(d)
	c.routeToNodes(&d.Hosts[len(d.Hosts)-1])
	for n := range c.Balancers {
		for k := range podsPerNode {
			d.Hosts = append(d.Hosts, c.pod(n+1, k+1))
		}
	}
	c.podServices(d, func(i int) (string, []netip.Addr) {
		n, k := i/podsPerNode+1, i%podsPerNode+1
		return localPod(n, k), podAddresses(n, 1+k)
	})
	for n := range c.Balancers {
		c.node(d, n+1)
	}
	return d.finish()
}

// routeToNodes adds the router's routes to pods, and to a node beyond.
func (c *nodes) routeToNodes(router *Host) {
	if last := c.Balancers; c.network(last) == beyondNetwork {
		for family, moved := range c.addresses(last) {
			gateways := router.Routes[family].Gateways // to the VIPs
			gateways[len(gateways)-1] = moved
		}
		router.Interfaces = append(router.Interfaces, Interface{Name: eth2, Addresses: networkAddresses(beyondNetwork, routerNumber)})
	}
	for n := range c.Balancers {
		router.Routes = append(router.Routes, c.podRoutes(n+1)...)
	}
}

// localPod is the name of the kth pod of the nth node.
func localPod(n, k int) string { return fmt.Sprintf("pod%d-%d", n, k) }

// node draws the nth balancer with the interfaces and routes to its pods.
func (c *nodes) node(d *drawing, n int) {
	h := c.balancer(d, n)
	h.Sysctls = map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.conf.all.rp_filter": "1", "net.ipv4.conf.default.rp_filter": "1",
	}
	h.Rules = invalidDrop
	h.Agent.FilterPods = c.options.FilterPods
	h.Routes = defaultRoutes(c.network(n))
	for other := range c.Balancers {
		if other+1 != n && c.network(other+1) == c.network(n) {
			h.Routes = append(h.Routes, c.podRoutes(other+1)...)
		}
	}
	if c.options.OwnPods {
		h.Agent.Services = c.keepOwn(d.Services, n)
	}
	if c.Forward == lb.DSR {
		h.Agent.Nodes = c.nodesOfOthers(n)
	}
	var ports []string
	for k := range podsPerNode {
		device := fmt.Sprintf("veth%d", k+1)
		ports = append(ports, device)
		h.Interfaces = append(h.Interfaces, Interface{Name: device, Container: true})
		d.Links = append(d.Links, Link{A: End{h.Name, device}, B: End{localPod(n, k+1), eth0}})
	}
	if bridged(n) {
		h.Bridges = []Bridge{{Name: podBridge, Ports: ports, Addresses: podNetworks(n, 1)}}
		return
	}
	for k, device := range ports {
		for family, gateway := range podAddresses(n, 1) {
			i := h.iface(device)
			i.Addresses = append(i.Addresses, hostPrefix(gateway))
			h.Routes = append(h.Routes, Route{Destination: hostPrefix(podAddresses(n, 2+k)[family]), Device: device})
		}
	}
}

// balancer draws the nth node's interface to the switch, or to the router.
func (c *nodes) balancer(d *drawing, n int) *Host {
	if c.network(n) == serviceNetwork {
		return d.balancer(n, 0)
	}
	h := d.unplugged(n)
	h.Interfaces = []Interface{{Name: eth0, MAC: balancerMAC(n), Addresses: networkAddresses(c.network(n), balancerNumber+n)}}
	d.Links = append(d.Links, Link{A: End{"router", eth2}, B: End{h.Name, eth0}})
	return d.draw(h)
}

// invalidDrop is kube-proxy's nftables rule for invalid connections.
const invalidDrop = `table inet filter {
  chain forward {
    type filter hook forward priority filter;
    ct state invalid counter drop
  }
}
`

// bridged reports whether the nth node's pods are on a bridge.
func bridged(n int) bool { return n%2 == 0 }

// keepOwn returns the services with the nth node's backends only.
func (c *nodes) keepOwn(services []lb.Service, n int) []lb.Service {
	own := slices.Clone(services)
	for i := range own {
		own[i].Backends = own[i].Backends[(n-1)*podsPerNode : n*podsPerNode]
	}
	return own
}

// nodesOfOthers returns the nodes of all pods that aren't on the nth one.
func (c *nodes) nodesOfOthers(n int) map[netip.Addr]netip.Addr {
	others := map[netip.Addr]netip.Addr{}
	for other := 1; other <= c.Balancers; other++ {
		if other == n {
			continue
		}
		for k := range podsPerNode {
			for family, pod := range podAddresses(other, 2+k) {
				others[pod] = c.addresses(other)[family]
			}
		}
	}
	return others
}

// podRoutes are the routes to the pods of the nth node.
func (c *nodes) podRoutes(n int) []Route {
	var routes []Route
	for family, network := range podNetworks(n, 0) {
		gateway := c.addresses(n)[family : family+1]
		routes = append(routes, Route{Destination: network.Masked(), Gateways: gateway})
	}
	return routes
}

// pod is the kth pod of the nth node, with a default route to the node.
func (c *nodes) pod(n, k int) Host {
	end, device := Interface{Name: eth0, Container: true, Addresses: podNetworks(n, 1+k)}, ""
	if !bridged(n) {
		end.Addresses, device = hostPrefixes(podAddresses(n, 1+k)), eth0
	}
	return podHost(localPod(n, k), end, defaultVia(podAddresses(n, 1), device))
}
