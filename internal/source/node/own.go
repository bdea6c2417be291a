// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/host/preflight"
	"fairlead.io/fairlead/internal/host/rtnl"
	"fairlead.io/fairlead/internal/lb"
)

// ownNode has the properties of a node that its agent determines if the file has none.
type ownNode struct {
	name       string
	interfaces []string
	// routerID is invalid without a BGP section.
	routerID netip.Addr
}

// findOwnNode completes a configuration for a node with these internal addresses,
// of which either, or both, may be invalid.
func findOwnNode(name string, conf *config.Config, four, six netip.Addr) (own ownNode, err error) {
	own = ownNode{name: name, interfaces: conf.Node.Interfaces}
	if own.interfaces == nil {
		if own.interfaces, err = mainInterfaces(four, six); err != nil {
			return own, fmt.Errorf("node.interfaces: %w", err)
		}
	}
	if conf.BGP == nil {
		return own, nil
	}
	if own.routerID = conf.BGP.RouterID; own.routerID.IsValid() {
		return own, nil
	}
	if own.routerID = four; four.IsValid() {
		return own, nil
	}
	if own.routerID = OwnAddress(own.interfaces, true); own.routerID.IsValid() {
		return own, nil
	}
	if !six.IsValid() {
		six = OwnAddress(own.interfaces, false)
	}
	if !six.IsValid() {
		return own, errors.New("bgp.routerID: missing: the node has no address")
	}
	own.routerID = routerIDOf(six)
	return own, nil
}

// routerIDOf derives a router id from the address of a node without IPv4: four bytes that differ
// between the nodes of an AS (RFC 6286), always the same ones for an address. They are in the
// form of a unicast address.
func routerIDOf(six netip.Addr) netip.Addr {
	sum := sha256.Sum256(six.AsSlice())
	for {
		if id := netip.AddrFrom4([4]byte(sum[:4])); id.IsGlobalUnicast() && id.As4()[0] < 224 && id.As4()[0] > 0 {
			return id
		}
		sum = sha256.Sum256(sum[:])
	}
}

// mainInterfaces returns the interfaces with the node's addresses, or else the interface of
// its default route.
func mainInterfaces(addresses ...netip.Addr) (names []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := range all {
		for _, has := range addressesOf(&all[i]) {
			if slices.Contains(addresses, has) && !slices.Contains(names, all[i].Name) {
				names = append(names, all[i].Name)
			}
		}
	}
	if names != nil {
		return names, nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if name := defaultInterface(family); name != "" {
			return []string{name}, nil
		}
	}
	return nil, errors.New("none has the node's address, and there is no default route: name them in the configuration")
}

// addressesOf are an interface's global unicast addresses.
func addressesOf(i *net.Interface) (list []netip.Addr) {
	found, err := i.Addrs()
	if err != nil {
		return nil // removed meanwhile
	}
	for _, a := range found {
		if p, ok := a.(*net.IPNet); ok {
			if address, ok := netip.AddrFromSlice(p.IP); ok && address.Unmap().IsGlobalUnicast() {
				list = append(list, address.Unmap())
			}
		}
	}
	return list
}

// OwnAddress is the first global unicast address of a family on interfaces; invalid without
// one.
func OwnAddress(interfaces []string, four bool) netip.Addr {
	for _, name := range interfaces {
		i, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		all := addressesOf(i)
		if at := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == four }); at >= 0 {
			return all[at]
		}
	}
	return netip.Addr{}
}

// networksOf are the networks of interfaces, as far as they are there.
func networksOf(interfaces []string) (all []netip.Prefix) {
	for _, name := range interfaces {
		if link, err := netlink.LinkByName(name); err == nil {
			networks, _ := preflight.Networks(link)
			all = append(all, networks...)
		}
	}
	return all
}

// warnConnected warns of VIPs in networks of the node's interfaces: with XDP no balancer answers hosts there
// that look for the address's MAC address, with IPVS all do.
func warnConnected(log *slog.Logger, networks []netip.Prefix, services []lb.Service) {
	for i := range services {
		s := &services[i]
		at := slices.IndexFunc(networks, func(p netip.Prefix) bool { return p.Contains(s.Address) && !p.IsSingleIP() })
		if at >= 0 && !s.Segment.Tagged() {
			log.Warn("VIP in a network of the node: hosts there look for it by ARP or NDP, not by a route",
				"service", s.Name, "vip", s.Address, "network", networks[at])
		}
	}
}

// defaultInterface returns the interface of the default route; empty without one.
func defaultInterface(family int) string {
	routes, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	})
	if err != nil {
		return ""
	}
	for _, r := range routes {
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
			return link.Attrs().Name
		}
	}
	return ""
}
