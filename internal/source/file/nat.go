// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"math"
	"net/netip"
)

// NAT says from which addresses and ports of the node flows of services with
// mode nat reach their backends. A running agent can't change it.
type NAT struct {
	// Addresses are distinct, and of each family at most MaxNATAddresses. Of a
	// family without any it is the address that the route to the backend prefers.
	Addresses []netip.Addr
	Ports     Ports
}

// Ports is a range of ports, both ends included.
type Ports struct {
	First, Last uint16
}

// String returns for example "1024-32767".
func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// MaxNATAddresses is the number of addresses of each family.
const MaxNATAddresses = 64

// defaultNATPorts are those below the ports that Linux gives to sockets
// (net.ipv4.ip_local_port_range), so that the node's own connections, such as
// health probes, have others.
func defaultNATPorts() Ports { return Ports{First: 1024, Last: 32767} }

func (n *NAT) read(v value) {
	v.readFields(
		optional("addresses", n.readAddresses),
		optional("ports", n.Ports.read),
	)
}

func (n *NAT) readAddresses(v value) {
	addresses(&n.Addresses)(v)
	families := map[bool]int{}
	for _, a := range n.Addresses {
		families[a.Is4()]++
	}
	if most := max(families[true], families[false]); most > MaxNATAddresses {
		v.failf("%d addresses of one family are too many: want at most %d", most, MaxNATAddresses)
	}
}

func (p *Ports) read(v value) {
	v.readFields(
		optional("first", number(&p.First, 1, math.MaxUint16)),
		optional("last", number(&p.Last, 1, math.MaxUint16)),
	)
	if p.Last < p.First && !v.broken("first", "last") {
		v.failf("the first port %d is behind the last one, %d", p.First, p.Last)
	}
}
