// SPDX-License-Identifier: Apache-2.0

// Package ledger is the controller's book of addresses: who has which, who waits
// for one, and who may still be seen with one that is no longer his.
//
// It stands between the API and internal/alloc in the story of DESIGN.md §8. The
// allocator knows only what is decided; statuses follow later, by writes that can
// fail, or succeed without an answer. So an address that an owner loses isn't free:
// it is *leaving*, and nobody gets it until a version of the owner's status is known
// that doesn't have it. That is how no address ever stands in two statuses.
package ledger

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// Wish is what an object asks for.
type Wish struct {
	Owner alloc.Owner
	// Created orders those who wait (metadata.creationTimestamp).
	Created time.Time
	// Labels and Class are the object's, by which pools and groups pick.
	Labels labels.Set
	Class  string
	// Families, Partial, Wanted, Pool, Ports and Sharing are as in alloc.Request. A wish
	// without families is one that can't be understood: its owner keeps what it has, as
	// far as its ports and its sharing allow.
	Families []alloc.Family
	Partial  bool
	Wanted   []netip.Addr
	Pool     string
	Ports    []alloc.Port
	Sharing  alloc.Sharing
	// SameKey says that the key of Sharing can't be understood: it is as before.
	SameKey bool
	// Segment is the virtual network of the address. Every tagged one has an address
	// space of its own, without pools: the address has to be wanted.
	Segment lb.Segment
}

// Grant is what an owner has.
type Grant struct {
	// Addresses are sorted, IPv4 first; at most one of each family.
	Addresses []netip.Addr
	// Leaving are those that it had. They have to be gone from its status, and
	// Settled told, before anything is added to that.
	Leaving []netip.Addr
	// Unmet says why the wish didn't come true: an error of package alloc. Lacking says
	// why of two families, one of which would do, there is only one.
	Unmet, Lacking error
}

// Ledger is the book. Its methods may be called from several goroutines, those
// about one owner from one at a time.
type Ledger struct {
	// wake is called, with the lock held, with owners whose grant changed while others
	// were served.
	wake func(alloc.Owner)

	mu         sync.Mutex
	pools      []Pool // in the order in which they are tried
	namespaces map[string]labels.Set
	// space are the addresses of the untagged network, spaces those of the others.
	space   *alloc.Allocator
	spaces  map[lb.Segment]*alloc.Allocator
	records map[alloc.Owner]*record
	// leaving are what keeps addresses from others while they leave.
	leaving []*leaving
	// grown says that there may be something for those who wait.
	grown bool
}

// record is what is known of one owner.
type record struct {
	wish           Wish
	unmet, lacking error
	// open says that the owner waits for what it wishes.
	open bool
}

// New returns an empty ledger. wake must not block, nor call the ledger.
func New(wake func(alloc.Owner)) *Ledger {
	return &Ledger{
		wake:       wake,
		namespaces: map[string]labels.Set{},
		space:      alloc.New(),
		spaces:     map[lb.Segment]*alloc.Allocator{},
		records:    map[alloc.Owner]*record{},
	}
}

// Claim says what an owner wishes now, and returns what it gets.
func (l *Ledger) Claim(w Wish) Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.serve()
	r := l.records[w.Owner]
	if r == nil {
		r = &record{wish: w}
		l.records[w.Owner] = r
	}
	l.claim(r, w)
	return l.grant(r)
}

// Grant returns what an owner has without asking for anything.
func (l *Ledger) Grant(owner alloc.Owner) Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[owner]; r != nil {
		return l.grant(r)
	}
	return Grant{}
}

// Knows reports whether an owner has or wants something.
func (l *Ledger) Knows(owner alloc.Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[owner] != nil
}

// Settled says that a new version of the owner's status was written, which shows
// these addresses: no earlier write can come true any more, and those that were
// leaving and aren't shown are free.
func (l *Ledger) Settled(owner alloc.Owner, shown []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part(func(g *leaving) bool { return g.owner == owner && !slices.Contains(shown, g.address) })
	l.serve()
}

// Gone says that the owner is gone, or has nothing in its status and wants
// nothing any more. All that it had is free.
func (l *Ledger) Gone(owner alloc.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[owner]; r != nil {
		l.spaceOf(r.wish.Segment).Release(owner)
		delete(l.records, owner)
		l.grown = true
	}
	l.part(func(g *leaving) bool { return g.owner == owner })
	l.serve()
}

func (l *Ledger) claim(r *record, w Wish) {
	former, had := r.wish, l.spaceOf(r.wish.Segment).Of(w.Owner)
	if !w.understood() {
		w.Segment = former.Segment
	}
	if w.SameKey {
		w.Sharing.Key = former.Sharing.Key
	}
	if former.Segment != w.Segment {
		l.spaceOf(former.Segment).Release(w.Owner)
	}
	result, err := l.ask(w)
	r.wish, r.unmet, r.lacking = w, err, result.Lacking
	r.open = r.unmet != nil || r.lacking != nil
	if former.Sharing != w.Sharing || !slices.Equal(former.Ports, w.Ports) {
		l.grown = true // somebody may share now who couldn't
	}
	for _, h := range had {
		if former.Segment != w.Segment || !slices.ContainsFunc(result.Addresses, func(a alloc.Address) bool { return a.Address == h.Address }) {
			l.leave(former, h.Address)
		}
	}
}

// ask asks the allocator for what a wish says.
func (l *Ledger) ask(w Wish) (alloc.Result, error) {
	if !w.understood() {
		return l.spaceOf(w.Segment).Keep(l.request(w)), nil
	}
	return l.spaceOf(w.Segment).Claim(l.request(w))
}

func (w Wish) understood() bool { return len(w.Families) > 0 }

func (l *Ledger) grant(r *record) Grant {
	g := Grant{Unmet: r.unmet, Lacking: r.lacking}
	for _, h := range l.spaceOf(r.wish.Segment).Of(r.wish.Owner) {
		g.Addresses = append(g.Addresses, h.Address)
	}
	for _, gone := range l.leaving {
		if gone.owner == r.wish.Owner {
			g.Leaving = append(g.Leaving, gone.address)
		}
	}
	return g
}

// serve gives those who wait what has become free, the oldest first, and wakes those
// who got something.
func (l *Ledger) serve() {
	if !l.grown {
		return
	}
	l.grown = false
	for _, r := range l.waiting() {
		before := l.grant(r)
		l.claim(r, r.wish)
		if !slices.Equal(before.Addresses, l.grant(r).Addresses) {
			l.wake(r.wish.Owner)
		}
	}
}

// waiting returns those who wait, the oldest first.
func (l *Ledger) waiting() []*record {
	var waiting []*record
	for _, r := range l.records {
		if r.open {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, func(a, b *record) int { return a.wish.compareAge(b.wish) })
	return waiting
}

// compareAge puts the older of two first, and orders those of one age by name.
func (w Wish) compareAge(o Wish) int {
	if age := w.Created.Compare(o.Created); age != 0 {
		return age
	}
	return w.Owner.Compare(o.Owner)
}
