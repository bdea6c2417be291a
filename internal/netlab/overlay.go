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

// Overlay is a VXLAN device (RFC 7348) of a host: its place in a segment that
// others carry.
type Overlay struct {
	Name string
	// ID is the segment's network identifier, 1 to 2^24-1.
	ID uint32
	// Local is the host's tunnel end point, one of its own addresses.
	Local netip.Addr
	MAC   lb.MAC
	// MTU is that of packets in the segment in bytes; 0 means 1500.
	MTU int
	// Addresses are the host's in the segment with the length of their network.
	Addresses []netip.Prefix
	// Members are the tunnel end points to which the host sends what is for all
	// or for somebody unknown.
	Members []netip.Addr
	// Stations are hosts of the segment that don't say where they are.
	Stations []Station
}

// Station is where frames for a host of a segment are sent.
type Station struct {
	MAC       lb.MAC
	TunnelEnd netip.Addr
}

const (
	vxlanPort = 4789 // IANA's; the kernel's own default is another one
	maxVNI    = 1<<24 - 1
)

// overlay makes the host's VXLAN devices.
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

// make makes the device, with everything that it is told of others. Without an
// address it only receives, and has no link-local one to announce either.
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

// forwardingEntry is an entry of a device's forwarding table; the zero MAC is
// everybody who is not in it.
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

// check returns what is wrong with the device, or nil.
func (o *Overlay) check(role Role) error {
	switch {
	case len(o.Name) > maxInterfaceName || !interfaceSyntax.MatchString(o.Name):
		return fmt.Errorf("overlay %q: want a letter and up to %d letters, digits, dots and hyphens", o.Name, maxInterfaceName-1)
	case role == Switch:
		return fmt.Errorf("overlay %s: a switch has none", o.Name)
	case o.ID < 1 || o.ID > maxVNI:
		return fmt.Errorf("overlay %s: identifier %d is not in 1 to %d", o.Name, o.ID, maxVNI)
	case !o.Local.IsValid() || o.MAC.IsZero():
		return fmt.Errorf("overlay %s: a tunnel end point or a MAC address is missing", o.Name)
	case o.MTU != 0 && (o.MTU < minMTU || o.MTU > maxMTU):
		return fmt.Errorf("overlay %s: mtu %d is not in %d to %d", o.Name, o.MTU, minMTU, maxMTU)
	}
	return nil
}
