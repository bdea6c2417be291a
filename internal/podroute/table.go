// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/rtnl"
)

// protocol marks the routes of this package in the kernel's main table (rtm_protocol). It is
// above the numbers of linux/rtnetlink.h.
const protocol = netlink.RouteProtocol(208)

// install adds the routes to the kernel, or changes them. It returns the prefixes of those
// that failed, and why.
func install(routes []route) (failed []netip.Prefix, err error) {
	for i := range routes {
		if one := routes[i].install(); one != nil {
			failed = append(failed, routes[i].prefix)
			err = errors.Join(err, fmt.Errorf("route %s: %w", routes[i].prefix, one))
		}
	}
	return failed, err
}

func (r *route) install() error {
	set := netlink.Route{Dst: ipNet(r.prefix), Protocol: protocol, Table: unix.RT_TABLE_MAIN}
	for _, pod := range r.via {
		link, err := linkTo(pod)
		if err != nil {
			return err
		}
		set.MultiPath = append(set.MultiPath, &netlink.NexthopInfo{LinkIndex: link, Gw: pod.AsSlice(), Flags: unix.RTNH_F_ONLINK})
	}
	if len(set.MultiPath) == 1 {
		only := set.MultiPath[0]
		set.LinkIndex, set.Gw, set.Flags, set.MultiPath = only.LinkIndex, only.Gw, only.Flags, nil
	}
	return netlink.RouteReplace(&set)
}

// linkTo returns the interface of a pod of this node: the pod's own link, or a bridge.
func linkTo(pod netip.Addr) (index int, err error) {
	found, err := netlink.RouteGet(pod.AsSlice())
	if err != nil {
		return 0, fmt.Errorf("pod %s: %w", pod, err)
	}
	if len(found) == 0 || found[0].Gw != nil || found[0].Type != unix.RTN_UNICAST {
		return 0, fmt.Errorf("pod %s: not on a link of this node", pod)
	}
	return found[0].LinkIndex, nil
}

// removeOthers removes the routes of this package for other prefixes.
func removeOthers(keep []route) error {
	present, err := list()
	if err != nil {
		return err
	}
	for i := range present {
		prefix := prefixOf(&present[i])
		if slices.ContainsFunc(keep, func(r route) bool { return r.prefix == prefix }) {
			continue
		}
		// A route also ends with its interface.
		if err := netlink.RouteDel(&present[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("route %s: remove: %w", prefix, err)
		}
	}
	return nil
}

// Remove removes all routes to balancer pods from the kernel.
func Remove() error { return removeOthers(nil) }

// routed returns the prefixes that have a route of this package, sorted.
func routed() (prefixes []netip.Prefix, err error) {
	present, err := list()
	for i := range present {
		prefixes = append(prefixes, prefixOf(&present[i]))
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes), err
}

// list returns the routes of this package.
func list() ([]netlink.Route, error) {
	filter := &netlink.Route{Protocol: protocol, Table: unix.RT_TABLE_MAIN}
	all, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return slices.DeleteFunc(all, func(r netlink.Route) bool { return r.Dst == nil }), nil
}

// nodeAddresses returns the addresses of this node's interfaces, and the next hops of its routes but this
// package's.
func nodeAddresses() (all []netip.Addr, err error) {
	add := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, a.Unmap())
		}
	}
	addresses, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	for i := range addresses {
		add(addresses[i].IP)
	}
	routes, err := rtnl.Dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	for _, r := range routes {
		if r.Protocol == protocol {
			continue
		}
		add(r.Gw)
		for _, hop := range r.MultiPath {
			add(hop.Gw)
		}
	}
	return all, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(r *netlink.Route) netip.Prefix {
	address, _ := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), bits)
}
