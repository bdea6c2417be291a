// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The networks of a cluster. Each node gives its pods addresses of a /24 and a /64 of
// podNetworks.
var (
	nodeNetwork   = network{netip.MustParsePrefix("172.30.0.0/24"), netip.MustParsePrefix("fd30::/64")}
	clientNetwork = network{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd31::/64")}
)

const podNetworks = "10.244.0.0/16,fd44::/48"

// Numbers of hosts in the nodes' network, in which node n1 is nodeNumber + 1, and
// in the client's.
const (
	controlPlaneNumber = 1
	nodeNumber         = 10
	routerNumber       = 254

	clientRouterNumber = 1
	clientNumber       = 2
)

const (
	httpsPort = 443
	etcdPort  = 2379
)

// Interfaces: every machine's first is eth0. The bridge is the control plane's; its
// ports have the names of the machines behind them.
const (
	eth0   = "eth0"
	eth1   = "eth1"
	bridge = "br0"
)

// wire makes router and client and the network without nodes. The API server's
// Service needs no kube-proxy: its address is one of the control plane's own, and
// nodes have a route there.
func (c *Cluster) wire() (err error) {
	if c.Router, err = boot("router", c.dir, unix.CLONE_NEWNET|unix.CLONE_NEWNS, routerScript+waitForEnd); err != nil {
		return err
	}
	if c.Client, err = boot("client", c.dir, unix.CLONE_NEWNET, waitForEnd); err != nil {
		return err
	}
	control := c.API.machine
	for m, settings := range map[*Machine]map[string]string{control: nil, c.Router: forwarding(), c.Client: nil} {
		if err := m.tune(settings); err != nil {
			return err
		}
		if err := m.up("lo"); err != nil {
			return err
		}
	}
	if err := control.addBridge(); err != nil {
		return err
	}
	serviceAddress := netip.PrefixFrom(serviceOfAPI, serviceOfAPI.BitLen())
	if err := control.address("lo", serviceAddress); err != nil {
		return err
	}
	if err := control.address(bridge, nodeNetwork.prefixes(controlPlaneNumber)...); err != nil {
		return err
	}
	if err := c.join(c.Router, nodeNetwork.prefixes(routerNumber)); err != nil {
		return err
	}
	return c.wireClient()
}

func (c *Cluster) wireClient() error {
	if err := connect(end{c.Router, eth1}, end{c.Client, eth0}); err != nil {
		return err
	}
	if err := c.Router.address(eth1, clientNetwork.prefixes(clientRouterNumber)...); err != nil {
		return err
	}
	if err := c.Client.address(eth0, clientNetwork.prefixes(clientNumber)...); err != nil {
		return err
	}
	if err := c.Client.route(defaultRoutes(clientNetwork.addresses(clientRouterNumber)...)...); err != nil {
		return err
	}
	return c.API.machine.route(defaultRoutes(nodeNetwork.addresses(routerNumber)...)...)
}

// bridgeMAC is the bridge's fixed MAC address. Without one a bridge takes that of one of
// its ports, which changes as machines come and go: packets for the control plane would
// then be lost until neighbours have resolved its address again.
var bridgeMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, controlPlaneNumber}

// addBridge makes the bridge, which runs no spanning tree: its ports forward at
// once. It floods multicast: without a querier, snooping would drop what IPv6 needs.
func (m *Machine) addBridge() error {
	err := m.withNetwork(func(h *netlink.Handle) error {
		snooping := false
		b := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
		b.Name, b.HardwareAddr = bridge, bridgeMAC
		return h.LinkAdd(b)
	})
	if err != nil {
		return err
	}
	return m.up(bridge)
}

// join connects a machine's first interface, with these addresses, to the bridge.
func (c *Cluster) join(m *Machine, addresses []netip.Prefix) error {
	control := c.API.machine
	if err := connect(end{control, m.name}, end{m, eth0}); err != nil {
		return err
	}
	err := control.withNetwork(func(h *netlink.Handle) error {
		port, err := h.LinkByName(m.name)
		if err != nil {
			return err
		}
		b, err := h.LinkByName(bridge)
		if err != nil {
			return err
		}
		return h.LinkSetMaster(port, b)
	})
	if err != nil {
		return fmt.Errorf("bridge port %s: %w", m.name, err)
	}
	return m.address(eth0, addresses...)
}

// unplug takes a machine from the bridge, at once.
func (c *Cluster) unplug(name string) error {
	return c.API.machine.withNetwork(func(h *netlink.Handle) error {
		port, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return h.LinkDel(port)
	})
}

// routePods adds routes to the pods of all nodes on every machine of the nodes' network.
func (c *Cluster) routePods() error {
	for _, to := range c.nodes {
		var routes []route
		for i, p := range to.pods {
			routes = append(routes, route{to: p, via: to.Addresses[i]})
		}
		machines := []*Machine{c.API.machine, c.Router}
		for _, n := range c.nodes {
			if n != to && n.Machine != nil {
				machines = append(machines, n.Machine)
			}
		}
		for _, m := range machines {
			if err := m.route(routes...); err != nil {
				return err
			}
		}
	}
	return nil
}
