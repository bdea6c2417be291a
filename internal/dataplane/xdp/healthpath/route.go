// SPDX-License-Identifier: Apache-2.0

package healthpath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/rtnl"
)

const (
	// routeTable has nothing but a default route through the device.
	routeTable = 4001
	// rulePriority is before the main table and most other rules, but behind
	// the table of this machine's own addresses (0).
	rulePriority = 250
)

// route leads marked packets of both families through the device. It is
// idempotent, and reports whether anything was missing.
func (d device) route(h *netlink.Handle) (missing bool, err error) {
	for _, family := range d.families {
		for what, add := range map[string]func() error{
			"route": func() error { return h.RouteAdd(d.defaultRoute(family)) },
			"rule":  func() error { return h.RuleAdd(rule(family)) },
		} {
			err := add()
			if err != nil && !errors.Is(err, unix.EEXIST) {
				return missing, fmt.Errorf("%s in table %d: %w", what, routeTable, err)
			}
			missing = missing || err == nil
		}
	}
	return missing, nil
}

func (d device) defaultRoute(family int) *netlink.Route {
	all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if family == netlink.FAMILY_V6 {
		all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{LinkIndex: d.near, Dst: all, Table: routeTable, Scope: netlink.SCOPE_LINK}
}

func rule(family int) *netlink.Rule {
	r := netlink.NewRule()
	mask := ^uint32(probeProbeMarkPROBE_NUMBER)
	r.Family, r.Priority, r.Table = family, rulePriority, routeTable
	r.Mark, r.Mask = uint32(probeProbeMarkPROBE_MARK), &mask
	return r
}

// removeRules removes the rules; a route goes with its device.
func removeRules(h *netlink.Handle) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		err := h.RuleDel(rule(family))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("rule %d: %w", rulePriority, err)
		}
	}
	return nil
}

// Source is the address of this machine, of the VIP's family, that a backend's
// answers should come to: the one that the route towards the backend, or its
// tunnel's end, prefers. Without such a route, or if that is of the other family,
// it is one of the device's through which it leads, else any.
func (s *Sender) Source(vip, towards netip.Addr) (netip.Addr, error) {
	routes, err := s.netlink.RouteGet(towards.AsSlice())
	device := 0
	if err == nil && len(routes) > 0 {
		source, _ := netip.AddrFromSlice(routes[0].Src)
		if source = source.Unmap(); source.Is4() == vip.Is4() && source.IsValid() {
			return source, nil
		}
		device = routes[0].LinkIndex
	}
	family := netlink.FAMILY_V6
	if vip.Is4() {
		family = netlink.FAMILY_V4
	}
	all, err := rtnl.Dump(func() ([]netlink.Addr, error) { return s.netlink.AddrList(nil, family) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("addresses of this machine: %w", err)
	}
	var best netip.Addr
	for _, a := range all {
		const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
		if a.Scope != unix.RT_SCOPE_UNIVERSE || a.Flags&unusable != 0 {
			continue
		}
		if address, _ := netip.AddrFromSlice(a.IP); !best.IsValid() || a.LinkIndex == device {
			best = address.Unmap()
		}
		if a.LinkIndex == device {
			break
		}
	}
	if !best.IsValid() {
		return best, fmt.Errorf("this machine has no address from which %s could be probed", vip)
	}
	return best, nil
}
