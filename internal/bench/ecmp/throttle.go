// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/netlab"
)

// The link to each balancer while throughput is measured: in place of the
// dissertation's 1 Gbit/s, of which one machine that plays all others could
// serve no two.
const (
	linkRate = 8e6 / 8 // bytes a second
	// linkBurst and linkQueue in bytes: a queue that takes what all clients have on
	// the way, so that packets wait and are not dropped.
	linkBurst = 4 << 10
	linkQueue = 512 << 10
)

// throttle limits what the switch sends to every balancer, or ends that.
func (s *site) throttle(limited bool) error {
	for _, name := range s.names {
		host, port := s.portOf(name)
		err := s.Do(host, func() error {
			link, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			qdisc := &netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{
					LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
				},
				Rate: linkRate, Buffer: burstTicks(), Limit: linkQueue,
			}
			if limited {
				return netlink.QdiscAdd(qdisc)
			}
			return netlink.QdiscDel(qdisc)
		})
		if err != nil {
			return fmt.Errorf("link to %s: %w", name, err)
		}
	}
	return nil
}

// burstTicks is how long a burst takes at the link's rate, in the kernel's unit.
func burstTicks() uint32 {
	return netlink.Xmittime(linkRate, linkBurst)
}

// portOf is the other end of a balancer's link.
func (s *site) portOf(name string) (host, port string) {
	for _, link := range s.topology.Links {
		for _, ends := range [][2]netlab.End{{link.A, link.B}, {link.B, link.A}} {
			if ends[0].Host == name {
				return ends[1].Host, ends[1].Interface
			}
		}
	}
	return "", ""
}
