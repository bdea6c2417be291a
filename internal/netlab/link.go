// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// bridgeName is the bridge in a switch's namespace.
const bridgeName = "br0"

const defaultMTU = 1500

// wire makes both ends of a link, each in its host's namespace from the start,
// so that no name is ever taken in the namespace of the caller.
func (b *builder) wire(l Link) error {
	hostA, hostB := b.topology.Host(l.A.Host), b.topology.Host(l.B.Host)
	peer, err := netns.GetFromPath(b.namespace(hostB.Name).path())
	if err != nil {
		return err
	}
	defer peer.Close()
	mtu := l.MTU
	if mtu == 0 {
		mtu = defaultMTU
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

// hardwareAddr is nil where the kernel is to choose.
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

// addBridge gives a switch its bridge; it returns nil for every other role.
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

// setFeatures makes the host's ends of its links behave as wires do. It runs
// inside the host's namespace.
//
// A veth pair leaves checksums and VLAN tags beside the frame, for hardware
// that isn't there. XDP forwards only the frame, so the receiver would see a
// wrong checksum and no tag: both offloads are off everywhere but between
// containers and their nodes, also on switch ports, which cut what receive offload
// has merged into packets again.
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
