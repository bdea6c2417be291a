// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// flannel is the name of the overlay's devices, as flannel names them in Kubernetes;
// podSegment is its segment.
const (
	flannel    = "flannel.1"
	podSegment = 1
)

// podMTU leaves room for the overlay's headers over IPv4 in packets of
// defaultMTU.
const podMTU = defaultMTU - 50

// podNumber is a pod's number in its node's network, in which the node is 1.
const podNumber = 2

// PodsOptions are options of the lab "pods".
type PodsOptions struct {
	// Balancers is their number, 1 to MaxBalancers, Nodes 1 to MaxServers.
	Balancers, Nodes int
	// HostGateway leads to other hosts' pods by routes in place of the overlay, as flannel's back
	// end host-gw. Packets then have at most 1500 bytes everywhere.
	HostGateway bool
}

// Pods is a client behind a router that spreads two VIPs over balancers as in
// ECMP. The backends are pods of a container cluster in an overlay of VXLAN devices,
// with a network for each host, as flannel builds it for Kubernetes.
//
//	client ── router ── switch ─┬─ lb1, lb2 …    flannel.1: 10.244.(100+N).0
//	                            └─ node1 ── pod1  flannel.1: 10.244.N.0
//
// The Nth pod is 10.244.N.2 and fd00:244:N::2. Services are the same as ECMP's with
// lb.NAT. Packets in the overlay have at most 1450 bytes, all others 1500.
func Pods(o PodsOptions) (Topology, error) {
	err := cmp.Or(within("pods", o.Balancers, "balancers", 1, MaxBalancers), within("pods", o.Nodes, "nodes", 1, MaxServers))
	if err != nil {
		return Topology{}, err
	}
	c := cluster{site: sited(ECMPOptions{Forward: lb.NAT, Balancers: o.Balancers, Servers: o.Nodes}), hostGateway: o.HostGateway}
	return c.draw(), nil
}

// cluster is a site whose servers are pods.
type cluster struct {
	site
	hostGateway bool // PodsOptions.HostGateway
}

func (c *cluster) draw() Topology {
	d := newDrawing("pods")
	c.client(d)
	c.router(d)
	for n := range c.Servers {
		c.node(d, n+1)
		c.pod(d, n+1)
	}
	c.podServices(d, func(i int) (string, []netip.Addr) { return podName(i + 1), podAddresses(i+1, podNumber) })
	for n := range c.Balancers {
		h := d.balancer(n+1, 0)
		h.Routes = defaultRoutes(serviceNetwork)
		c.join(h, balancerPods+n+1)
	}
	return d.finish()
}

func podName(n int) string { return fmt.Sprintf("pod%d", n) }

// podServices draws the services of ECMP with pods for servers, in their order.
func (c *cluster) podServices(d *drawing, pod func(i int) (name string, addresses []netip.Addr)) {
	c.service(d, "web", lb.TCP, webPort, vips())
	c.service(d, "echo", lb.UDP, echoPort, vips())
	for s := range d.Services {
		for i := range c.Servers {
			name, addresses := pod(i)
			d.Services[s].Backends[i].Address, d.Probes[s].Answers[i] = addresses[s%2], name
		}
	}
}

// node draws the nth node, which forwards between its pod and the overlay.
func (c *cluster) node(d *drawing, n int) {
	h := Host{
		Name: fmt.Sprintf("node%d", n), Role: Router,
		Interfaces: []Interface{{Name: eth1, Addresses: podNetworks(n, 1)}},
		Routes:     defaultRoutes(serviceNetwork),
	}
	d.plug(&h, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, serverNumber+n)}, 0)
	c.join(&h, n)
	d.Hosts = append(d.Hosts, h)
}

// pod draws the nth node's pod.
func (c *cluster) pod(d *drawing, n int) {
	end := Interface{Name: eth0, Addresses: podNetworks(n, podNumber)}
	d.Hosts = append(d.Hosts, podHost(podName(n), end, defaultVia(podAddresses(n, 1), "")))
	link := Link{A: End{fmt.Sprintf("node%d", n), eth1}, B: End{podName(n), eth0}, MTU: podMTU}
	if c.hostGateway {
		link.MTU = defaultMTU
	}
	d.Links = append(d.Links, link)
}

// podHost is a pod that serves at its own addresses.
func podHost(name string, end Interface, routes []Route) Host {
	return Host{
		Name: name, Role: Server, Interfaces: []Interface{end}, Routes: routes,
		Files:     map[string]string{nginxConfig: nginxText(name, ownWebPort)},
		Processes: []Process{nginx(), echo(name, hostAddresses(end.Addresses))},
	}
}

// balancerPods plus a balancer's number is the number of its network in the overlay,
// in which only its device is.
const balancerPods = 100

// join adds the overlay's device to a host, with its network's first address and
// entries for all others, or the routes in its place.
func (c *cluster) join(h *Host, network int) {
	if c.hostGateway {
		for _, other := range c.networks() {
			for family, gateway := range c.underlay(other) {
				if other != network {
					h.Routes = append(h.Routes, Route{Destination: podNetworks(other, 0)[family], Gateways: []netip.Addr{gateway}})
				}
			}
		}
		return
	}
	device := Overlay{
		Name: flannel, ID: podSegment, Local: c.underlay(network)[0], MAC: overlayMAC(podSegment, network), MTU: podMTU,
	}
	device.Addresses = hostPrefixes(podAddresses(network, 0))
	for _, other := range c.networks() {
		if other == network {
			continue
		}
		mac := overlayMAC(podSegment, other)
		// IPv6 floods some frames, which would count as dropped otherwise.
		device.Members = append(device.Members, c.underlay(other)[0])
		device.Stations = append(device.Stations, Station{mac, c.underlay(other)[0]})
		for family, gateway := range podAddresses(other, 0) {
			h.Neighbours = append(h.Neighbours, Neighbour{flannel, gateway, mac})
			h.Routes = append(h.Routes, Route{
				Destination: podNetworks(other, 0)[family], Gateways: []netip.Addr{gateway}, Device: flannel,
			})
		}
	}
	h.Overlays = []Overlay{device}
}

// networks are the numbers of all networks in the overlay.
func (c *cluster) networks() []int {
	var all []int
	for n := range c.Servers {
		all = append(all, n+1)
	}
	for n := range c.Balancers {
		all = append(all, balancerPods+n+1)
	}
	return all
}

// underlay returns the addresses of a network's host, of which the first is its tunnel end point.
func (c *cluster) underlay(network int) []netip.Addr {
	number := serverNumber + network
	if network > balancerPods {
		number = balancerNumber + network - balancerPods
	}
	return addresses(serviceNetwork, number)
}

// podAddresses returns the pod addresses of a number in a host's network of the
// overlay: IPv4, then IPv6.
func podAddresses(network, number int) []netip.Addr {
	decimal := addresses(0, network)[1].As16() // its last bytes read as the number
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 244, byte(network), byte(number)}),
		netip.AddrFrom16([16]byte{
			0: 0xfd, 2: 0x02, 3: 0x44, 4: decimal[14], 5: decimal[15], 15: byte(number),
		}),
	}
}

// podNetworks returns addresses with the lengths of their networks.
func podNetworks(network, number int) []netip.Prefix {
	a := podAddresses(network, number)
	return []netip.Prefix{netip.PrefixFrom(a[0], 24), netip.PrefixFrom(a[1], 64)}
}
