// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/lab/wire"
)

// program sets features and attaches lab/wire's programs before the interfaces are up, so
// that no frame passes without them.
func (b *builder) program(host *Host) error {
	return b.namespace(host.Name).do(func() error {
		if err := setFeatures(host); err != nil {
			return err
		}
		for _, i := range host.Interfaces {
			link, err := net.InterfaceByName(i.Name)
			if err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
			switch index := link.Index; {
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
	return l.changePort(host, func(port, bridge netlink.Link) error {
		return errors.Join(flood(bridge, false), netlink.LinkSetNoMaster(port))
	})
}

// Mend connects a host to its switch again.
func (l *Lab) Mend(host string) error {
	return l.changePort(host, func(port, bridge netlink.Link) error {
		return errors.Join(netlink.LinkSetMaster(port, bridge), flood(bridge, true))
	})
}

// flood sets whether a bridge floods frames for unknown stations.
func flood(bridge netlink.Link, on bool) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, port := range links {
		if port.Attrs().MasterIndex == bridge.Attrs().Index {
			err = errors.Join(err, netlink.LinkSetFlood(port, on))
		}
	}
	return err
}

// changePort calls change, in the switch's namespace, with the port of a host and the bridge.
func (l *Lab) changePort(host string, change func(port, bridge netlink.Link) error) error {
	for _, h := range l.State().Hosts {
		if h.Role != Switch || !slices.Contains(h.Interfaces, host) {
			continue
		}
		return l.Do(h.Name, func() error {
			port, err1 := netlink.LinkByName(host)
			bridge, err2 := netlink.LinkByName(bridgeName)
			err := errors.Join(err1, err2)
			if err == nil {
				err = change(port, bridge)
			}
			if err != nil {
				return fmt.Errorf("switch port %s: %w", host, err)
			}
			return nil
		})
	}
	return fmt.Errorf("host %s: not on a switch", host)
}
