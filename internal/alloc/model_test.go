// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/alloc"
)

// model computes an allocator's results by brute force. It is written to be
// obvious: it looks at every address of every pool, and at every object.
type model struct {
	pools   []modelPool
	objects map[alloc.Owner]*object
	// retained has the namespace of each retained address.
	retained map[netip.Addr]string
}

type modelPool struct {
	alloc.Pool
	addresses []netip.Addr // sorted
}

// object is an owner as the API server would store it.
type object struct {
	spec    alloc.Request
	created time.Time
	status  []alloc.Address // sorted
}

func (p modelPool) holds(a netip.Addr) bool { return slices.Contains(p.addresses, a) }

// named returns the pools of some names, in their order.
func (m *model) named(names []string) (pools []modelPool) {
	for _, name := range names {
		for _, p := range m.pools {
			if p.Name == name {
				pools = append(pools, p)
			}
		}
	}
	return pools
}

// label returns the pool from which an address counts as taken.
func label(pools []modelPool, h alloc.Address) (alloc.Address, bool) {
	var names []string
	for _, p := range pools {
		if p.holds(h.Address) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return alloc.Address{Address: h.Address}, false
	}
	if !slices.Contains(names, h.Pool) {
		h.Pool = names[0]
	}
	return h, true
}

// others are the objects besides an owner's that have an address.
func (m *model) others(owner alloc.Owner, a netip.Addr) (others []*object) {
	for name, o := range m.objects {
		has := slices.ContainsFunc(o.status, func(h alloc.Address) bool { return h.Address == a })
		if has && name != owner {
			others = append(others, o)
		}
	}
	return others
}

// compatible is the rule of sharing.
func compatible(a, b alloc.Request) bool {
	return a.Sharing.Key != "" && a.Sharing == b.Sharing && a.Owner.Namespace == b.Owner.Namespace &&
		!slices.ContainsFunc(a.Ports, func(p alloc.Port) bool { return slices.Contains(b.Ports, p) })
}

// fits reports whether an owner may be on an address.
func (m *model) fits(r alloc.Request, a netip.Addr) bool {
	return !slices.ContainsFunc(m.others(r.Owner, a), func(o *object) bool { return !compatible(r, o.spec) })
}

// kept returns the addresses that an owner keeps.
func (m *model) kept(r alloc.Request) (kept []alloc.Address) {
	for _, h := range m.objects[r.Owner].status {
		h, held := label(m.named(r.Pools), h)
		if held && slices.Contains(r.Families, alloc.FamilyOf(h.Address)) && m.fits(r, h.Address) {
			kept = append(kept, h)
		}
	}
	return kept
}

// option is an address that an owner could get; the one with the lowest score is
// the best.
type option struct {
	alloc.Address
	score [2]int
}

// Outcomes of a claim besides the reasons of errors; none stands for Exhausted and NoPool.
const (
	granted = "granted"
	none    = "none left"
)

// claim returns the addresses that an owner should hold after a claim, and whether
// an optional one is missing.
func (m *model) claim(r alloc.Request) (held []alloc.Address, lacking bool, outcome string) {
	pools := m.named(r.Pools)
	kept := slices.DeleteFunc(m.kept(r), func(h alloc.Address) bool {
		return !slices.Contains(r.Wanted, h.Address) && slices.ContainsFunc(pools, func(p modelPool) bool { return p.Name == h.Pool && p.External })
	})
	if r.Pool != "" {
		pools = slices.DeleteFunc(pools, func(p modelPool) bool { return p.Name != r.Pool })
		if len(pools) == 0 {
			return kept, false, alloc.BadPool
		}
	}
	var options [][]option
	families, found := slices.Sorted(slices.Values(r.Families)), 0
	for _, a := range r.Wanted {
		if outcome := m.refused(r, pools, a); outcome != granted {
			return kept, false, outcome
		}
	}
	for _, f := range families {
		choice := m.options(r, pools, kept, f)
		options = append(options, choice)
		found += min(len(choice), 1)
	}
	if found < len(families) && (!r.Partial || found == 0) {
		return kept, false, none
	}
	held = best(options)
	for _, h := range kept {
		family := func(o alloc.Address) bool { return alloc.FamilyOf(o.Address) == alloc.FamilyOf(h.Address) }
		if !slices.ContainsFunc(held, family) {
			held = append(held, h)
		}
	}
	slices.SortFunc(held, func(a, b alloc.Address) int { return a.Address.Compare(b.Address) })
	return held, found < len(families), granted
}

// refused says why a wanted address can't be had. Histories want at most one of
// a family.
func (m *model) refused(r alloc.Request, pools []modelPool, a netip.Addr) string {
	_, held := label(pools, alloc.Address{Address: a})
	switch {
	case !slices.Contains(r.Families, alloc.FamilyOf(a)):
		return alloc.BadFamily
	case !held:
		return alloc.NotInPool
	case !m.fits(r, a):
		return alloc.Taken
	case m.retainedForAnother(r, a):
		return alloc.Retained
	}
	return granted
}

// retainedForAnother reports whether an address without owner is another namespace's.
func (m *model) retainedForAnother(r alloc.Request, a netip.Addr) bool {
	namespace, found := m.retained[a]
	return found && namespace != r.Owner.Namespace
}

// options lists the addresses of a family that an owner could get. An address that
// has to be it stands alone.
func (m *model) options(r alloc.Request, pools []modelPool, kept []alloc.Address, f alloc.Family) (options []option) {
	var old alloc.Address
	for _, h := range kept {
		if alloc.FamilyOf(h.Address) == f {
			old = h
		}
	}
	for _, a := range r.Wanted {
		if alloc.FamilyOf(a) == f {
			h, _ := label(pools, alloc.Address{Address: a, Pool: old.Pool})
			return []option{{Address: h}}
		}
	}
	pools = slices.DeleteFunc(slices.Clone(pools), func(p modelPool) bool { return p.External })
	if h, held := label(pools, old); held {
		return []option{{Address: h}}
	}
	for i, p := range pools {
		for j, a := range p.addresses {
			others := m.others(r.Owner, a)
			if alloc.FamilyOf(a) != f || !p.Automatic && r.Pool == "" || !m.fits(r, a) || m.retainedForAnother(r, a) {
				continue
			}
			found := option{alloc.Address{Address: a, Pool: p.Name}, [2]int{i, j}}
			if len(others) > 0 {
				return []option{found} // company comes before everything
			}
			options = append(options, found)
		}
	}
	return options
}

// best picks an option of each family, out of all pairs: both from one pool if
// possible, then the order of pools, then of addresses.
func best(options [][]option) (held []alloc.Address) {
	options = slices.DeleteFunc(slices.Clone(options), func(o []option) bool { return len(o) == 0 })
	byScore := func(a, b option) int { return slices.Compare(a.score[:], b.score[:]) }
	switch len(options) {
	case 0:
		return nil
	case 1:
		return []alloc.Address{slices.MinFunc(options[0], byScore).Address}
	}
	pairs := [][2]option{}
	for _, a := range options[0] {
		for _, b := range options[1] {
			pairs = append(pairs, [2]option{a, b})
		}
	}
	least := slices.MinFunc(pairs, func(p, q [2]option) int {
		return cmp.Or(
			betweenPools(p)-betweenPools(q),
			byScore(p[0], q[0]), byScore(p[1], q[1]),
		)
	})
	return []alloc.Address{least[0].Address, least[1].Address}
}

// betweenPools is 1 for a pair out of two pools.
func betweenPools(p [2]option) int {
	if p[0].Address.Pool == p[1].Address.Pool {
		return 0
	}
	return 1
}

// adopt is a restart: the oldest owners take their addresses first. It reports how
// many addresses are lost in it.
func (m *model) adopt() (lost int) {
	var order []*object
	for _, o := range m.objects {
		order = append(order, o)
	}
	slices.SortFunc(order, func(a, b *object) int {
		return cmp.Or(a.created.Compare(b.created), a.spec.Owner.Compare(b.spec.Owner))
	})
	statuses := make([][]alloc.Address, len(order))
	for i, o := range order {
		statuses[i], o.status = o.status, nil
	}
	for i, o := range order {
		for _, h := range statuses[i] {
			if !m.fits(o.spec, h.Address) {
				lost++
				continue
			}
			h, _ = label(m.pools, alloc.Address{Address: h.Address})
			o.status = append(o.status, h)
		}
	}
	return lost
}
