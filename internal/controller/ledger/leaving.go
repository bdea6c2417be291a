// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/alloc"
)

// leaving is an address that an owner has lost but may be seen with. In the
// allocator it has an owner of its own, a stand-in, who shares it with the same
// others on the same ports.
type leaving struct {
	owner   alloc.Owner
	address netip.Addr
	space   *alloc.Allocator
	standIn alloc.Holding
}

// leave keeps an address from others that an owner, by its former wish, just lost.
func (l *Ledger) leave(former Wish, address netip.Addr) {
	g := &leaving{
		owner: former.Owner, address: address, space: l.spaceOf(former.Segment),
		standIn: alloc.Holding{
			Owner:     alloc.Owner{Kind: fmt.Sprintf("%s leaving %s", former.Owner.Kind, address), Namespace: former.Owner.Namespace, Name: former.Owner.Name},
			Addresses: []netip.Addr{address}, Ports: former.Ports, Sharing: former.Sharing,
		},
	}
	if slices.ContainsFunc(l.leaving, func(o *leaving) bool { return o.space == g.space && o.standIn.Owner == g.standIn.Owner }) {
		return
	}
	l.leaving = append(l.leaving, g)
	g.hold()
}

// hold does nothing while somebody else has the address: the owner was never its
// rightful one.
func (g *leaving) hold() { g.space.Adopt([]alloc.Holding{g.standIn}) }

// part lets addresses go. Those that others are leaving too stay with them.
func (l *Ledger) part(settled func(*leaving) bool) {
	n := len(l.leaving)
	l.leaving = slices.DeleteFunc(l.leaving, func(g *leaving) bool {
		if !settled(g) {
			return false
		}
		g.space.Release(g.standIn.Owner)
		return true
	})
	l.grown = l.grown || len(l.leaving) < n
	for _, g := range l.leaving {
		g.hold()
	}
}
