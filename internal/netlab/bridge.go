// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Bridge joins some of a host's interfaces. Unlike a switch the host has
// addresses at it.
type Bridge struct {
	Name string
	// Ports are interfaces of the host.
	Ports []string
	// Addresses are the host's at the bridge with the length of their network.
	Addresses []netip.Prefix
}

// bridge makes the host's bridges.
func (b *builder) bridge(host *Host) error {
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		for _, one := range host.Bridges {
			if err := one.make(h); err != nil {
				return fmt.Errorf("bridge %s: %w", one.Name, err)
			}
		}
		return nil
	})
}

func (o *Bridge) make(h *netlink.Handle) error {
	bridge, err := newBridge(h, o.Name)
	if err != nil {
		return err
	}
	for _, name := range o.Ports {
		port, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetMaster(port, bridge)
		}
		if err != nil {
			return fmt.Errorf("port %s: %w", name, err)
		}
	}
	if err := keepAddress(h, o.Name); err != nil {
		return err
	}
	return h.LinkSetUp(bridge)
}

// keepAddress makes a bridge's MAC address its own, as network plugins do. Otherwise
// it is that of one of its ports, and changes when that one goes: for a while the
// others' frames to it arrive nowhere then.
func keepAddress(h *netlink.Handle, bridge string) error {
	link, err := h.LinkByName(bridge)
	if err != nil {
		return err
	}
	return h.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr)
}

// newBridge makes a bridge that is down. It runs no spanning tree: its ports
// forward at once. It floods multicast, since nobody in a lab would ask for the
// groups that IPv6 needs.
func newBridge(h *netlink.Handle, name string) (netlink.Link, error) {
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
	bridge.Name = name
	return bridge, h.LinkAdd(bridge)
}

// check returns what is wrong with the bridge, or nil.
func (o *Bridge) check(h *Host) error {
	if len(o.Name) > maxInterfaceName || !interfaceSyntax.MatchString(o.Name) || h.Role == Switch {
		return fmt.Errorf("bridge %q: no name of an interface, or in a switch", o.Name)
	}
	for _, port := range o.Ports {
		if h.iface(port) == nil {
			return fmt.Errorf("bridge %s: no interface %s", o.Name, port)
		}
	}
	return nil
}
