// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// Pool is a pool with those whom it is for.
type Pool struct {
	alloc.Pool
	// Priority puts pools with a greater one in front.
	Priority int32
	// Namespaces and Objects pick by labels.
	Namespaces, Objects labels.Selector
}

// SetPools replaces the pools, which have distinct names. It returns the owners that
// may be concerned, whose next Claim has to follow: all.
func (l *Ledger) SetPools(pools []Pool) []alloc.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pools = slices.SortedFunc(slices.Values(pools), func(a, b Pool) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	var supplies []alloc.Pool
	for _, p := range l.pools {
		supplies = append(supplies, p.Pool)
	}
	l.space.SetPools(supplies)
	l.grown = true
	l.serve()
	return slices.Collect(maps.Keys(l.records))
}

// SetNamespace tells a namespace's labels, nil of one that is gone, and returns its
// owners, whose next Claim has to follow if they have changed.
func (l *Ledger) SetNamespace(name string, now labels.Set) (concerned []alloc.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, known := l.namespaces[name]; known && maps.Equal(before, now) {
		return nil
	}
	if l.namespaces[name] = now; now == nil {
		delete(l.namespaces, name)
	}
	for owner := range l.records {
		if owner.Namespace == name {
			concerned = append(concerned, owner)
		}
	}
	l.grown = true
	l.serve()
	return concerned
}

// KnowsNamespace reports whether a namespace's labels are known. Before, a Claim of one
// of its owners may get an address of a pool that others go before.
func (l *Ledger) KnowsNamespace(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.namespaces[name]
	return known
}

// Usage returns how much of a pool is assigned; nothing of one that there isn't.
func (l *Ledger) Usage(pool string) alloc.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	usage, _ := l.space.Usage(pool)
	return usage
}

// Waiting returns how many owners lack something that they wish for.
func (l *Ledger) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting())
}

// request translates a wish, with the pools that the owner may use.
func (l *Ledger) request(w Wish) alloc.Request {
	r := alloc.Request{
		Owner: w.Owner, Families: w.Families, Partial: w.Partial, Wanted: w.Wanted, Pool: w.Pool,
		Ports: w.Ports, Sharing: w.Sharing,
	}
	if w.Segment.Tagged() {
		r.Pools = []string{everything}
		return r
	}
	for _, p := range l.pools {
		if p.Namespaces.Matches(l.namespaces[w.Owner.Namespace]) && p.Objects.Matches(w.Labels) {
			r.Pools = append(r.Pools, p.Name)
		}
	}
	return r
}

// everything is the one pool of a tagged network. It gives what is wanted only.
const everything = "everything"

// spaceOf returns the addresses of a network.
func (l *Ledger) spaceOf(s lb.Segment) *alloc.Allocator {
	if !s.Tagged() {
		return l.space
	}
	space := l.spaces[s]
	if space == nil {
		space = alloc.New()
		l.spaces[s] = space
		four, _ := alloc.ParseRange("0.0.0.0/0")
		six, _ := alloc.ParseRange("::/0")
		space.SetPools([]alloc.Pool{{Name: everything, Ranges: []alloc.Range{four, six}}})
	}
	return space
}
