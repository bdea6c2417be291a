// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// Membership says that nodes are balancers and servers of a service at once, in the
// modes L2DSR, IPIP and GUE. The zero Membership is that of servers which are apart.
type Membership struct {
	// Self is this node's own address, by which others know it: packets for a backend
	// of this address go to its kernel.
	Self netip.Addr `json:"self,omitzero"`
	// Balancers are the addresses of the other nodes that may balance the service. What
	// they send here has been balanced: it goes to the kernel, too, and their tunnels
	// end here.
	Balancers []netip.Addr `json:"balancers,omitempty"`
}

// Is reports whether a backend is this node itself.
func (m *Membership) Is(b Backend) bool { return m.Self.IsValid() && m.Self == b.Address }

// check says what is wrong with the membership of a service in a mode.
func (m *Membership) check(f *findings, forward Forward) {
	if !m.Self.IsValid() && len(m.Balancers) == 0 {
		return
	}
	if forward != 0 && !slices.Contains([]Forward{L2DSR, IPIP, GUE}, forward) {
		f.add("membership", fmt.Errorf("only with l2dsr, ipip and gue: want none with %s", forward))
	}
	f.add("membership.self", CheckAddress(m.Self))
	for i, a := range m.Balancers {
		f.add(fmt.Sprintf("membership.balancers[%d]", i), CheckAddress(a))
	}
}
