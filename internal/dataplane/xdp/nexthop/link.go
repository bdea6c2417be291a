// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// link is what the decision needs to know of a network device. It is
// comparable: an event that leaves it as it was concerns nobody.
type link struct {
	index int
	name  string
	// mac is zero if the device has no Ethernet address.
	mac lb.MAC
	mtu int
	// up means that the device is switched on and has a carrier.
	up bool
	// vlan is the id of a VLAN device, else 0; parent is the index of the device
	// below it, and protocol the EtherType of its tags.
	vlan     uint16
	parent   int
	protocol uint16
	// master is the index of the bridge of which the device is a port, or of another
	// device that has its packets; else 0.
	master int
}

func linkOf(l netlink.Link) link {
	a := l.Attrs()
	out := link{
		index: a.Index,
		name:  a.Name,
		mtu:   a.MTU,
		// IFF_LOWER_UP and not IFF_RUNNING: it follows the carrier at once, as
		// the flags of routes do.
		up:     a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0,
		master: a.MasterIndex,
	}
	if len(a.HardwareAddr) == len(out.mac) {
		out.mac = lb.MAC(a.HardwareAddr)
	}
	if v, ok := l.(*netlink.Vlan); ok {
		out.vlan, out.parent, out.protocol = uint16(v.VlanId), a.ParentIndex, uint16(v.VlanProtocol)
	}
	return out
}
