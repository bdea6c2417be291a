// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/dataplane/xdp/switchport"
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
			if i.VLAN != 0 {
				return fmt.Errorf("interface %s: vlan %d: there is no program for it yet", i.Name, i.VLAN)
			}
			if b.facesBalancer(End{host.Name, i.Name}) {
				if err := switchport.Attach(link.Attrs().Index); err != nil {
					return fmt.Errorf("interface %s: %w", i.Name, err)
				}
			}
		}
		return nil
	})
}

// facesBalancer reports whether the other end of the link is a balancer's.
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
