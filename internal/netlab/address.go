// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// address gives a host its addresses and its permanent neighbours.
func (b *builder) address(host *Host) error {
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		for _, a := range host.Loopback {
			if err := addAddress(h, "lo", netip.PrefixFrom(a, a.BitLen())); err != nil {
				return err
			}
		}
		for _, i := range host.Interfaces {
			for _, p := range i.Addresses {
				if err := addAddress(h, i.Name, p); err != nil {
					return err
				}
			}
		}
		for _, o := range host.Overlays {
			for _, p := range o.Addresses {
				if err := addAddress(h, o.Name, p); err != nil {
					return err
				}
			}
		}
		for _, o := range host.Bridges {
			for _, p := range o.Addresses {
				if err := addAddress(h, o.Name, p); err != nil {
					return err
				}
			}
		}
		for _, n := range host.Neighbours {
			if err := addNeighbour(h, n); err != nil {
				return fmt.Errorf("neighbour %s: %w", n.Address, err)
			}
		}
		return nil
	})
}

func addAddress(h *netlink.Handle, name string, p netip.Prefix) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		// Usable at once, without duplicate address detection.
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("interface %s: address %s: %w", name, p, err)
	}
	return nil
}

func addNeighbour(h *netlink.Handle, n Neighbour) error {
	link, err := h.LinkByName(n.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", n.Interface, err)
	}
	return h.NeighSet(&netlink.Neigh{
		LinkIndex:    link.Attrs().Index,
		State:        netlink.NUD_PERMANENT,
		IP:           n.Address.AsSlice(),
		HardwareAddr: n.MAC[:],
	})
}

// route gives a host its routes; the gateways' networks must be there.
func (b *builder) route(host *Host) error {
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		for _, r := range host.Routes {
			route, err := kernelRoute(h, r)
			if err == nil {
				err = h.RouteAdd(route)
			}
			if err != nil {
				return fmt.Errorf("route %s: %w", r.Destination, err)
			}
		}
		return nil
	})
}

// kernelRoute leaves interfaces that aren't given to the kernel, which knows them
// from the gateways.
func kernelRoute(h *netlink.Handle, r Route) (*netlink.Route, error) {
	route := &netlink.Route{Dst: ipNet(r.Destination)}
	if r.Device != "" {
		link, err := h.LinkByName(r.Device)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", r.Device, err)
		}
		route.LinkIndex = link.Attrs().Index
	}
	if r.Device != "" && len(r.Gateways) > 0 {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	if len(r.Gateways) == 0 {
		route.Scope = netlink.SCOPE_LINK
	}
	if len(r.Gateways) == 1 {
		route.Gw = r.Gateways[0].AsSlice()
		return route, nil
	}
	for _, g := range r.Gateways {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: g.AsSlice()})
	}
	return route, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
