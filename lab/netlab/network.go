// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

const (
	defaultMTU = 1500

	// bridgeName is the bridge in a switch's namespace.
	bridgeName = "br0"
	vxlanPort  = 4789 // IANA's, which isn't the kernel's default
)

// bridgeMAC is the address of each bridge, as network plugins set one. Otherwise a bridge
// has the address of one of its ports, until that port is removed: frames to the old one
// are lost for a while.
var bridgeMAC = lb.MAC{0x02, 2, 0, 0, 0, 1}

// commands are lines of ip-batch(8).
type commands []string

func (c *commands) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// command creates both ends of a link in their hosts' namespaces: no name is used in the
// caller's.
func (l Link) command(t *Topology, s *State) string {
	end := func(e End) string {
		mac := ""
		if i := t.Host(e.Host).iface(e.Interface); !i.MAC.IsZero() {
			mac = " address " + i.MAC.String()
		}
		return fmt.Sprintf("name %s mtu %d%s netns %s", e.Interface, cmp.Or(l.MTU, defaultMTU), mac, s.Host(e.Host).Namespace)
	}
	return fmt.Sprintf("link add %s type veth peer %s", end(l.A), end(l.B))
}

// commands make the host's network of its interfaces.
func (h *Host) commands() commands {
	var c commands
	for _, b := range h.Bridges {
		c.bridge(b.Name, b.Ports)
	}
	if h.Role == Switch {
		var ports []string
		for _, i := range h.Interfaces {
			ports = append(ports, i.Name)
		}
		c.bridge(bridgeName, ports)
	}
	c.add("link set lo up")
	for _, i := range h.Interfaces {
		c.add("link set %s up", i.Name)
	}
	for _, o := range h.Overlays {
		c.overlay(&o)
	}
	for _, a := range h.Loopback {
		c.address("lo", hostPrefix(a), "")
	}
	for _, d := range h.devices() {
		for i, a := range d.Addresses {
			peer := ""
			if len(d.Peers) > 0 {
				peer = " peer " + d.Peers[i].String()
			}
			c.address(d.Name, a, peer)
		}
	}
	for _, n := range h.Neighbours {
		c.add("neigh replace %s lladdr %s dev %s nud permanent", n.Address, n.MAC, n.Interface)
	}
	for _, r := range h.Routes {
		c.add("route add %s", r)
	}
	return c
}

// bridge adds a bridge; its ports aren't up yet. It has no spanning tree, so its ports forward at once, and floods
// multicast, which IPv6 needs.
func (c *commands) bridge(name string, ports []string) {
	c.add("link add %s address %s type bridge mcast_snooping 0", name, bridgeMAC)
	for _, port := range ports {
		c.add("link set %s master %s", port, name)
	}
	c.add("link set %s up", name)
}

// overlay adds a VXLAN device. Without an address it only receives, and gets no
// link-local one to announce.
func (c *commands) overlay(o *Overlay) {
	c.add("link add %s mtu %d address %s type vxlan id %d local %s dstport %d",
		o.Name, cmp.Or(o.MTU, defaultMTU), o.MAC, o.ID, o.Local, vxlanPort)
	if len(o.Addresses) == 0 {
		c.add("link set %s addrgenmode none", o.Name)
	}
	c.add("link set %s up", o.Name)
}

// address adds an address, in IPv6 without duplicate address detection, so that it is usable
// at once. With a peer there is a route to the peer's address only.
func (c *commands) address(device string, a netip.Prefix, peer string) {
	detection := ""
	if a.Addr().Is6() {
		detection = " nodad"
	}
	c.add("addr add %s%s dev %s%s", a, peer, device, detection)
}

// forwarding are the commands of bridge(8) that fill the forwarding tables of overlays; the
// zero address matches unknown stations.
func (h *Host) forwarding() (c commands) {
	for _, o := range h.Overlays {
		for _, m := range o.Members {
			o.Stations = append(o.Stations, Station{TunnelEnd: m})
		}
		for _, s := range o.Stations {
			c.add("fdb append %s dev %s dst %s self permanent", s.MAC, o.Name, s.TunnelEnd)
		}
	}
	return c
}

// String is written as ip-route(8) does.
func (r Route) String() string {
	var b strings.Builder
	b.WriteString(r.Destination.String())
	for _, g := range r.Gateways {
		if len(r.Gateways) > 1 {
			b.WriteString(" nexthop")
		}
		b.WriteString(" via " + g.String())
	}
	if r.Device != "" {
		b.WriteString(" dev " + r.Device)
		if len(r.Gateways) > 0 {
			b.WriteString(" onlink")
		}
	}
	return b.String()
}
