// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// Held is what an object's status shows, and its wish.
type Held struct {
	Wish
	Addresses []netip.Addr
}

// Adopt takes over what statuses show, after SetPools and SetNamespace and before
// the first Claim. Of two that show the same address the older object keeps it, if
// they don't share it; to the other it is leaving. Then those who lack something
// are served, the oldest first. It returns the conflicts.
func (l *Ledger) Adopt(objects []Held) []alloc.Conflict {
	l.mu.Lock()
	defer l.mu.Unlock()
	holdings := map[lb.Segment][]alloc.Holding{}
	for _, o := range objects {
		l.records[o.Owner] = &record{wish: o.Wish}
		holdings[o.Segment] = append(holdings[o.Segment], alloc.Holding{
			Owner: o.Owner, Created: o.Created, Addresses: o.Addresses, Ports: o.Ports, Sharing: o.Sharing,
		})
	}
	var conflicts []alloc.Conflict
	for segment, held := range holdings {
		conflicts = append(conflicts, l.spaceOf(segment).Adopt(held)...)
	}
	for _, c := range conflicts {
		l.leave(l.records[c.Owner].wish, c.Address)
	}
	for _, o := range objects {
		r := l.records[o.Owner]
		r.open = len(l.grant(r).Addresses) < len(o.Families)
	}
	l.grown = true
	l.serve()
	return conflicts
}

// Member is an owner with what selectors of groups look at.
type Member struct {
	Owner alloc.Owner
	// Labels are the object's, Namespace those of its namespace.
	Labels, Namespace map[string]string
	Class             string
}

// Unit is owners that have to be served by the same nodes, as they share addresses.
type Unit struct {
	// Members are at least one, sorted.
	Members []Member
	// Addresses is how many different ones they have.
	Addresses int
}

// Units returns all owners that have addresses, sorted.
func (l *Ledger) Units() (units []Unit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[alloc.Owner]bool{}
	owners := make([]alloc.Owner, 0, len(l.records))
	for owner := range l.records {
		owners = append(owners, owner)
	}
	slices.SortFunc(owners, alloc.Owner.Compare)
	for _, owner := range owners {
		if seen[owner] {
			continue
		}
		if u := l.unit(owner); u.Addresses > 0 {
			units = append(units, u)
			for _, m := range u.Members {
				seen[m.Owner] = true
			}
		}
	}
	return units
}

// unit returns an owner with those whom it shares addresses with.
func (l *Ledger) unit(owner alloc.Owner) (u Unit) {
	space := l.spaceOf(l.records[owner].wish.Segment)
	addresses := map[netip.Addr]bool{}
	for _, o := range space.Together(owner) {
		r := l.records[o]
		if r == nil {
			continue // a stand-in
		}
		u.Members = append(u.Members, Member{o, r.wish.Labels, l.namespaces[o.Namespace], r.wish.Class})
		for _, h := range space.Of(o) {
			addresses[h.Address] = true
		}
	}
	u.Addresses = len(addresses)
	return u
}
