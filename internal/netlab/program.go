// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/dataplane/xdp/geneveport"
	"fairlead.io/fairlead/internal/dataplane/xdp/switchport"
	"fairlead.io/fairlead/internal/dataplane/xdp/vlanport"
)

// program attaches the small BPF programs that make up for what veth pairs and
// some kernels lack. They come before the interfaces are up, so that no frame
// passes without them, and go with the interfaces.
func (b *builder) program(host *Host) error {
	return b.namespace(host.Name).do(func() error {
		for _, i := range host.Interfaces {
			link, err := netlink.LinkByName(i.Name)
			if err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
			switch index := link.Attrs().Index; {
			case i.VLAN != 0:
				err = vlanport.Attach(index, i.VLAN)
			case i.Geneve != 0:
				err = geneveport.Attach(index, i.Geneve, hostAddresses(i.Addresses))
			case !i.Container && b.facesBalancer(End{host.Name, i.Name}):
				err = switchport.Attach(index)
			}
			if err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
		}
		return nil
	})
}

// hostAddresses leaves out the lengths of the networks.
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
