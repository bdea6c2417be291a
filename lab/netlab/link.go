// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"fairlead.io/fairlead/lab/wire"
)

// bridgeName is the bridge in a switch's namespace.
const bridgeName = "br0"

// An IPv6 link carries at least 1280 bytes (RFC 8200 §5); 9000 is the largest MTU of
// Ethernet in practice.
const (
	defaultMTU = 1500
	minMTU     = 1280
	maxMTU     = 9000
)

// wire creates both ends of a link in their hosts' namespaces: no name is used in the
// caller's.
func (b *builder) wire(l Link) error {
	hostA, hostB := b.topology.Host(l.A.Host), b.topology.Host(l.B.Host)
	peer, err := netns.GetFromPath(b.namespace(hostB.Name).path())
	if err != nil {
		return err
	}
	defer peer.Close()
	mtu := cmp.Or(l.MTU, defaultMTU)
	if mtu < minMTU || mtu > maxMTU {
		return fmt.Errorf("mtu %d is not in %d to %d", mtu, minMTU, maxMTU)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = l.A.Interface, mtu
	attrs.HardwareAddr = hardwareAddr(hostA.iface(l.A.Interface))
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = l.B.Interface, uint32(mtu)
	veth.PeerHardwareAddr = hardwareAddr(hostB.iface(l.B.Interface))
	veth.PeerNamespace = netlink.NsFd(int(peer))
	return b.withHandle(hostA.Name, func(h *netlink.Handle) error { return h.LinkAdd(veth) })
}

// hardwareAddr is nil if the kernel chooses.
func hardwareAddr(i *Interface) net.HardwareAddr {
	if i.MAC.IsZero() {
		return nil
	}
	return i.MAC[:]
}

// plumb finishes the interfaces of one host: features, bridge, up.
func (b *builder) plumb(host *Host) error {
	if err := b.namespace(host.Name).do(func() error { return setFeatures(host) }); err != nil {
		return err
	}
	return b.withHandle(host.Name, func(h *netlink.Handle) error {
		bridge, err := addBridge(h, host.Role)
		if err != nil {
			return fmt.Errorf("bridge %s: %w", bridgeName, err)
		}
		names := []string{"lo"}
		for i := range host.Interfaces {
			names = append(names, host.Interfaces[i].Name)
		}
		for i, name := range names {
			link, err := h.LinkByName(name)
			if err != nil {
				return fmt.Errorf("interface %s: %w", name, err)
			}
			if bridge != nil && i > 0 {
				if err := h.LinkSetMaster(link, bridge); err != nil {
					return fmt.Errorf("interface %s: join %s: %w", name, bridgeName, err)
				}
			}
			if err := h.LinkSetUp(link); err != nil {
				return fmt.Errorf("interface %s: up: %w", name, err)
			}
		}
		return nil
	})
}

// addBridge creates the bridge of a switch; it returns nil for other roles.
func addBridge(h *netlink.Handle, role Role) (netlink.Link, error) {
	if role != Switch {
		return nil, nil
	}
	bridge, err := newBridge(h, bridgeName)
	if err != nil {
		return nil, err
	}
	return bridge, h.LinkSetUp(bridge)
}

// setFeatures disables offloads of the host's interfaces, in its namespace. A veth pair
// keeps checksums and VLAN tags outside of the frame, for hardware; XDP forwards only
// the frame, so the receiver would see a wrong checksum and no tag. Both offloads are
// off everywhere but between containers and their nodes, also on switch ports, which
// segment packets that receive offload has merged.
func setFeatures(host *Host) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("ethtool: %w", err)
	}
	defer tool.Close()
	for i := range host.Interfaces {
		name := host.Interfaces[i].Name
		if host.Interfaces[i].Container {
			continue
		}
		err := tool.Change(name, map[string]bool{
			"tx-checksum-ip-generic": false,
			"tx-vlan-hw-insert":      false,
			"rx-vlan-hw-parse":       false,
		})
		if err != nil {
			return fmt.Errorf("interface %s: features: %w", name, err)
		}
	}
	return nil
}

// Cut disconnects a host from its switch: its interface stays up, but nothing arrives
// in either direction. The switch stops flooding frames for the host to others:
// network cards would drop them, but a veth pair passes them to a balancer's program,
// which would balance them.
func (l *Lab) Cut(host string) error {
	return l.changePort(host, func(h *netlink.Handle, port, bridge netlink.Link) error {
		return errors.Join(flood(h, bridge, false), h.LinkSetNoMaster(port))
	})
}

// Mend connects a host to its switch again.
func (l *Lab) Mend(host string) error {
	return l.changePort(host, func(h *netlink.Handle, port, bridge netlink.Link) error {
		return errors.Join(h.LinkSetMaster(port, bridge), flood(h, bridge, true))
	})
}

// flood sets whether a bridge floods frames for unknown stations.
func flood(h *netlink.Handle, bridge netlink.Link, on bool) error {
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	for _, port := range links {
		if port.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		if err := h.LinkSetFlood(port, on); err != nil {
			return fmt.Errorf("flooding: %w", err)
		}
	}
	return nil
}

// changePort changes the switch port of a host.
func (l *Lab) changePort(host string, change func(h *netlink.Handle, port, bridge netlink.Link) error) error {
	state := l.State()
	i := slices.IndexFunc(state.Hosts, func(h HostState) bool {
		return h.Role == Switch && slices.Contains(h.Interfaces, host)
	})
	if i < 0 {
		return fmt.Errorf("lab %s: host %s: not on a switch", state.Name, host)
	}
	err := l.Do(state.Hosts[i].Name, func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		defer h.Close()
		bridge, err := h.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		port, err := h.LinkByName(host)
		if err != nil {
			return err
		}
		return change(h, port, bridge)
	})
	if err != nil {
		return fmt.Errorf("lab %s: port %s: %w", state.Name, host, err)
	}
	return nil
}

// program attaches lab/wire's programs before the interfaces are up, so that no frame
// passes without them.
func (b *builder) program(host *Host) error {
	return b.namespace(host.Name).do(func() error {
		for _, i := range host.Interfaces {
			link, err := netlink.LinkByName(i.Name)
			if err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
			switch index := link.Attrs().Index; {
			case i.VLAN != 0:
				err = wire.AttachVLAN(index, i.VLAN)
			case i.Geneve != 0:
				err = wire.AttachGeneve(index, i.Geneve, hostAddresses(i.Addresses))
			case !i.Container && b.facesBalancer(End{host.Name, i.Name}):
				err = wire.AttachSwitch(index)
			}
			if err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
		}
		return nil
	})
}

// hostAddresses are the addresses of prefixes.
func hostAddresses(prefixes []netip.Prefix) []netip.Addr {
	var all []netip.Addr
	for _, p := range prefixes {
		all = append(all, p.Addr())
	}
	return all
}

// facesBalancer reports whether the end is the peer of a balancer's interface.
func (b *builder) facesBalancer(e End) bool {
	for _, l := range b.topology.Links {
		other := l.B
		switch e {
		case l.A:
		case l.B:
			other = l.A
		default:
			continue
		}
		return b.topology.Host(other.Host).Role == Balancer
	}
	return false
}
