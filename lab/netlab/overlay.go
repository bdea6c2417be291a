// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// Overlay is a VXLAN device (RFC 7348) of a host.
type Overlay struct {
	Name string
	// ID is the segment's network identifier, 1 to 2^24-1.
	ID uint32
	// Local is the host's tunnel end point, one of its own addresses.
	Local netip.Addr
	MAC   lb.MAC
	// MTU of packets in the segment in bytes; 0 means 1500.
	MTU int
	// Addresses are the host's in the segment with the length of their network.
	Addresses []netip.Prefix
	// Members are the tunnel end points to which the host floods frames.
	Members []netip.Addr
	// Stations are hosts of the segment that aren't learned.
	Stations []Station
}

// Station is the tunnel end point of a host in a segment.
type Station struct {
	MAC       lb.MAC
	TunnelEnd netip.Addr
}

const (
	vxlanPort = 4789 // IANA's, which isn't the kernel's default
)

// overlay creates the host's VXLAN devices.
func (b *builder) overlay(host *Host) error {
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		for _, o := range host.Overlays {
			if err := o.make(h); err != nil {
				return fmt.Errorf("overlay %s: %w", o.Name, err)
			}
		}
		return nil
	})
}

// make creates the device with its forwarding table. Without an address it only
// receives, and gets no link-local one to announce.
func (o *Overlay) make(h *netlink.Handle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = o.Name, cmp.Or(o.MTU, defaultMTU), net.HardwareAddr(o.MAC[:])
	device := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: int(o.ID), SrcAddr: o.Local.AsSlice(), Port: vxlanPort, Learning: true,
	}
	if err := h.LinkAdd(device); err != nil {
		return err
	}
	if len(o.Addresses) == 0 {
		const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
		if err := h.LinkSetIP6AddrGenMode(device, none); err != nil {
			return err
		}
	}
	for _, m := range o.Members {
		if err := h.NeighAppend(forwardingEntry(device, Station{TunnelEnd: m})); err != nil {
			return fmt.Errorf("member %s: %w", m, err)
		}
	}
	for _, s := range o.Stations {
		if err := h.NeighAppend(forwardingEntry(device, s)); err != nil {
			return fmt.Errorf("station %s: %w", s.MAC, err)
		}
	}
	return h.LinkSetUp(device)
}

// forwardingEntry is an entry of a device's forwarding table; the zero MAC matches
// unknown stations.
func forwardingEntry(device netlink.Link, s Station) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex:    device.Attrs().Index,
		Family:       unix.AF_BRIDGE,
		Flags:        netlink.NTF_SELF,
		State:        netlink.NUD_PERMANENT,
		IP:           s.TunnelEnd.AsSlice(),
		HardwareAddr: s.MAC[:],
	}
}

// Bridge connects interfaces of a host, which unlike a switch has addresses on it.
type Bridge struct {
	Name string
	// Ports are interfaces of the host.
	Ports []string
	// Addresses are the host's at the bridge with the length of their network.
	Addresses []netip.Prefix
}

// bridge creates the host's bridges.
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

// keepAddress sets a bridge's MAC address, as network plugins do. Otherwise the bridge
// has the address of one of its ports, until that port is removed: frames to the old
// one are lost for a while.
func keepAddress(h *netlink.Handle, bridge string) error {
	link, err := h.LinkByName(bridge)
	if err != nil {
		return err
	}
	return h.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr)
}

// newBridge creates a bridge that is down. It has no spanning tree, so its ports forward
// at once, and floods multicast, which IPv6 needs.
func newBridge(h *netlink.Handle, name string) (netlink.Link, error) {
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
	bridge.Name = name
	return bridge, h.LinkAdd(bridge)
}
