// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/netlab"
)

// withNetwork calls fn with a netlink socket in the machine's network namespace.
func (m *Machine) withNetwork(fn func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPid(m.pid())
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err == nil {
		defer h.Close()
		err = fn(h)
	}
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	return nil
}

// tune has a machine use IPv6 addresses at once and take answers that come from
// elsewhere than requests went to. It comes before any interface, since those
// inherit "default" when they are made.
func (m *Machine) tune(more map[string]string) error {
	settings := map[string]string{
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/default/disable_ipv6": "0",
		"ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/accept_ra": "0",
	}
	maps.Copy(settings, more)
	return m.Do(func() error {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(settings[name]), 0o644); err != nil {
				return fmt.Errorf("machine %s: %w", m.name, err)
			}
		}
		return nil
	})
}

// forwarding are the settings of machines that packets pass, by way of all of
// several equal routes.
func forwarding() map[string]string {
	return map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		// By five-tuple; the policy 1 would take the hash of the sender's socket (lab/netlab).
		"ipv4/fib_multipath_hash_policy": "3", "ipv6/fib_multipath_hash_policy": "3",
		"ipv4/fib_multipath_hash_fields": "55", "ipv6/fib_multipath_hash_fields": "55",
	}
}

// end is an interface of a machine.
type end struct {
	machine *Machine
	name    string
}

// connect makes a link between two machines.
func connect(a, b end) error {
	peer, err := netns.GetFromPid(b.machine.pid())
	if err != nil {
		return err
	}
	defer peer.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.name
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = b.name, netlink.NsFd(int(peer))
	err = a.machine.withNetwork(func(h *netlink.Handle) error { return h.LinkAdd(veth) })
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.name, err)
	}
	for _, e := range []end{a, b} {
		if err := e.machine.plug(e.name); err != nil {
			return err
		}
	}
	return nil
}

// attach calls fn, which attaches a program to an interface (lab/wire). Its thread is in the
// machine's network only, as programs are loaded with the test's own /proc.
func (m *Machine) attach(name string, fn func(*netlink.LinkAttrs) error) error {
	ns, err := netns.GetFromPid(m.pid())
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	defer ns.Close()
	err = netlab.OnThread(func() error {
		if err := netns.Set(ns); err != nil {
			return err
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return fn(link.Attrs())
	})
	if err != nil {
		return fmt.Errorf("machine %s: interface %s: %w", m.name, name, err)
	}
	return nil
}

// plug makes one end of a link behave as hardware does and turns it on: a veth pair
// leaves checksums and VLAN tags outside the frame, where XDP doesn't see them.
func (m *Machine) plug(name string) error {
	err := m.Do(func() error {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		return tool.Change(name, map[string]bool{
			"tx-checksum-ip-generic": false, "tx-vlan-hw-insert": false, "rx-vlan-hw-parse": false,
		})
	})
	if err != nil {
		return fmt.Errorf("machine %s: interface %s: features: %w", m.name, name, err)
	}
	return m.up(name)
}

// up turns an interface on.
func (m *Machine) up(name string) error {
	return m.withNetwork(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		return nil
	})
}

// address gives an interface addresses with their networks.
func (m *Machine) address(name string, prefixes ...netip.Prefix) error {
	return m.withNetwork(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		for _, p := range prefixes {
			if err := h.AddrReplace(link, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
				return fmt.Errorf("interface %s: address %s: %w", name, p, err)
			}
		}
		return nil
	})
}

// route leads to a network by way of a gateway.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// route adds routes, or replaces those to the same networks.
func (m *Machine) route(routes ...route) error {
	return m.withNetwork(func(h *netlink.Handle) error {
		for _, r := range routes {
			if err := h.RouteReplace(&netlink.Route{Dst: ipNet(r.to), Gw: r.via.AsSlice()}); err != nil {
				return fmt.Errorf("route %s: %w", r.to, err)
			}
		}
		return nil
	})
}

// defaultRoutes lead everywhere by way of the gateways, one of each family.
func defaultRoutes(gateways ...netip.Addr) []route {
	var routes []route
	for _, g := range gateways {
		everywhere := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if g.Is4() {
			everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		routes = append(routes, route{everywhere, g})
	}
	return routes
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// addresses are the two of a host of that number in the networks, which it adds to
// theirs.
func (n network) addresses(host int) []netip.Addr {
	var all []netip.Addr
	for _, p := range n {
		a := p.Masked().Addr().AsSlice()
		a[len(a)-1] += byte(host)
		addr, _ := netip.AddrFromSlice(a)
		all = append(all, addr)
	}
	return all
}

// prefixes are the addresses with the lengths of the networks.
func (n network) prefixes(host int) []netip.Prefix {
	var all []netip.Prefix
	for i, a := range n.addresses(host) {
		all = append(all, netip.PrefixFrom(a, n[i].Bits()))
	}
	return all
}

// network is one of IPv4 and one of IPv6, which the same hosts are in.
type network [2]netip.Prefix
