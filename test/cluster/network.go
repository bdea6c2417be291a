// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/wire"
)

// The networks of a cluster. Each node gives its pods addresses of a /24 and a /64 of
// podNetworks.
var (
	nodeNetwork       = network{netip.MustParsePrefix("172.30.0.0/24"), netip.MustParsePrefix("fd30::/64")}
	clientNetwork     = network{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd31::/64")}
	managementNetwork = network{netip.MustParsePrefix("172.31.0.0/24"), netip.MustParsePrefix("fd32::/64")}
)

// apiNetwork is the network of the API server and of Nodes' addresses.
func (c *Cluster) apiNetwork() network {
	if c.options.Management {
		return managementNetwork
	}
	return nodeNetwork
}

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

// Interfaces: every machine's first is eth0, in the management network eth1. The bridges are the
// control plane's; their ports have the names of the machines behind them, and for other
// interfaces than eth0 the interface's name.
const (
	eth0   = "eth0"
	eth1   = "eth1"
	bridge = "br0"
	// managementBridge is the bridge of the management network.
	managementBridge = "br1"
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
	if err := control.addBridge(bridge, bridgeMAC); err != nil {
		return err
	}
	if c.options.Management {
		if err := control.addBridge(managementBridge, managementMAC); err != nil {
			return err
		}
		if err := control.address(managementBridge, managementNetwork.prefixes(controlPlaneNumber)...); err != nil {
			return err
		}
	}
	serviceAddress := netip.PrefixFrom(serviceOfAPI, serviceOfAPI.BitLen())
	if err := control.address("lo", serviceAddress); err != nil {
		return err
	}
	if err := control.address(bridge, nodeNetwork.prefixes(controlPlaneNumber)...); err != nil {
		return err
	}
	if err := c.join(c.Router, eth0, bridge, nodeNetwork.prefixes(routerNumber)); err != nil {
		return err
	}
	if c.options.Management { // for clients
		to := route{managementNetwork[0], nodeNetwork.addresses(controlPlaneNumber)[0]}
		if err := c.Router.route(to); err != nil {
			return err
		}
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

// bridgeMAC is the bridge's fixed MAC address. Without one a bridge takes the address of
// one of its ports, which changes as machines come and go: packets for the control plane
// would then be lost until neighbours have resolved its address again.
var (
	bridgeMAC     = net.HardwareAddr{0x02, 0, 0, 0, 0, controlPlaneNumber}
	managementMAC = net.HardwareAddr{0x02, 0, 0, 0, 1, controlPlaneNumber}
)

// addBridge makes a bridge, which runs no spanning tree: its ports forward at
// once. It floods multicast: without a querier, snooping would drop IPv6's neighbour
// discovery.
func (m *Machine) addBridge(name string, mac net.HardwareAddr) error {
	err := m.withNetwork(func(h *netlink.Handle) error {
		snooping := false
		b := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
		b.Name, b.HardwareAddr = name, mac
		return h.LinkAdd(b)
	})
	if err != nil {
		return err
	}
	return m.up(name)
}

// join connects a new interface of a machine, with these addresses, to a bridge, whose port
// receives frames of the machine's XDP program.
func (c *Cluster) join(m *Machine, name, bridge string, addresses []netip.Prefix) error {
	control, at := c.API.machine, m.name
	if name != eth0 {
		at += "-" + name
	}
	if err := connect(end{control, at}, end{m, name}); err != nil {
		return err
	}
	err := control.withNetwork(func(h *netlink.Handle) error {
		port, err := h.LinkByName(at)
		if err != nil {
			return err
		}
		b, err := h.LinkByName(bridge)
		if err != nil {
			return err
		}
		return h.LinkSetMaster(port, b)
	})
	if err == nil {
		err = control.attach(at, func(port *netlink.LinkAttrs) error { return wire.AttachSwitch(port.Index) })
	}
	if err != nil {
		return fmt.Errorf("bridge port %s: %w", at, err)
	}
	return m.address(name, addresses...)
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
