// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// addressRequest is an object's request for addresses.
type addressRequest struct {
	// Request has no pools: they follow from the labels.
	alloc.Request
	// Invalid says why the request is invalid; nil if it is valid. An invalid request has no
	// families: its owner keeps the addresses that its ports and sharing allow.
	Invalid error
	// Version is the object's (metadata.resourceVersion).
	Version string
	// Created orders pending requests (metadata.creationTimestamp).
	Created time.Time
	// Labels and Class are the object's, which pools and groups select by.
	Labels labels.Set
	Class  string
	// KeepKey says that the sharing key is invalid: the former one stays.
	KeepKey bool
	// Segment is the virtual network of the address. Every tagged network has an address
	// space of its own without pools: the address has to be requested.
	Segment lb.Segment
}

// reject returns the request as an invalid one.
func (q addressRequest) reject(reason string, why error) addressRequest {
	q.Families, q.Invalid = nil, &alloc.Error{Reason: reason, Text: why.Error()}
	return q
}

// allocation is the result of a request.
type allocation struct {
	// Request is the request in effect: an invalid one has the former sharing key and network.
	Request addressRequest
	// Addresses are sorted, IPv4 first; at most one of each family.
	Addresses []netip.Addr
	// Err says why the request failed. Missing says why there is
	// only one address of two families if one is sufficient, Unshared why an address isn't shared
	// with others of the same key.
	Err, Missing, Unshared error
	// Changed says that the addresses, or the properties that groups select by, differ from the
	// last request's.
	Changed bool
}

// allocations has the addresses of all owners, the pending requests, and the objects of assigned
// addresses. Allocators decide; an owner has an address once the address's object lists it.
//
// Methods may be called concurrently, but not for the same owner.
type allocations struct {
	// enqueue is called, with the lock held, for owners whose addresses changed by other
	// requests.
	enqueue func(alloc.Owner)
	// objects change with the lock held, and are read without it.
	objects addressObjects

	mu      sync.Mutex
	supply  supply
	records records
	now     func() time.Time
	// foreign are the Services that other controllers serve.
	foreign foreignServices
	// left are the Services that wait though they aren't ours.
	left map[alloc.Owner]bool
	// hosts are the addresses of nodes and BGP peers, with their objects. No owner gets one.
	hosts map[netip.Addr]string
	// supplyChanged says that pending requests may succeed now.
	supplyChanged bool
}

// record is the state of one owner.
type record struct {
	request                addressRequest
	err, missing, unshared error
	// pending says that the request isn't fulfilled.
	pending bool
}

// records are the states of owners.
type records map[alloc.Owner]*record

// waiting returns the records with pending requests, the oldest first.
func (all records) waiting() []*record {
	waiting := slices.DeleteFunc(slices.Collect(maps.Values(all)), func(r *record) bool { return !r.pending })
	slices.SortFunc(waiting, func(a, b *record) int {
		return cmp.Or(a.request.Created.Compare(b.request.Created), a.request.Owner.Compare(b.request.Owner))
	})
	return waiting
}

// newAllocations returns empty allocations. enqueue must neither block nor call them.
func newAllocations(wake func(alloc.Owner)) *allocations {
	return &allocations{
		enqueue: wake,
		supply:  supply{Networks: alloc.NewNetworks(), namespaces: map[string]labels.Set{}},
		records: records{},
		objects: addressObjects{byName: map[string]*v1alpha1.AssignedAddress{}, listed: map[alloc.Owner]map[string]bool{}},
		now:     time.Now,
		foreign: foreignServices{},
		left:    map[alloc.Owner]bool{},
	}
}

// Outdated reports whether a request is of an older version of the object than its last one: the
// cache may be older than the adopted version.
func (l *allocations) Outdated(q addressRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[q.Owner]
	return r != nil && r.request.Version != "" && isNewer(r.request.Version, q.Version)
}

// Request sets the request of an owner, and returns its allocation.
func (l *allocations) Request(q addressRequest) allocation {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.serveWaiting()
	delete(l.left, q.Owner)
	r := l.records[q.Owner]
	known := r != nil
	if !known {
		r = &record{request: q}
		l.records[q.Owner] = r
	}
	former, before := r.request, l.supply.held(r.request)
	l.update(r, q)
	now := l.supply.held(r.request)
	return allocation{
		Request: r.request, Addresses: now, Err: r.err, Missing: r.missing, Unshared: r.unshared,
		Changed: !known || !slices.Equal(before, now) || !maps.Equal(former.Labels, q.Labels) || former.Class != q.Class,
	}
}

// Has reports whether an owner has a request, or the object of an address lists it.
func (l *allocations) Has(owner alloc.Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[owner] != nil || len(l.objects.listing(owner)) > 0
}

// Release ends the request of an owner that was deleted, or has no address in its status and
// requests none.
func (l *allocations) Release(owner alloc.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[owner]; r != nil {
		space := l.supply.In(r.request.Segment)
		former := space.Of(owner)
		space.Release(owner)
		delete(l.records, owner)
		for _, h := range former {
			l.refresh(h.Address, r.request.Segment)
		}
		l.supplyChanged = true
	}
	l.serveWaiting()
	l.supply.Prune()
}

func (l *allocations) update(r *record, q addressRequest) {
	former, had := r.request, l.supply.In(r.request.Segment).Of(q.Owner)
	if len(q.Families) == 0 {
		q.Segment = former.Segment
	}
	if q.KeepKey {
		q.Sharing.Key = former.Sharing.Key
	}
	if former.Segment != q.Segment {
		l.supply.In(former.Segment).Release(q.Owner)
	}
	result, err := l.supply.allocate(q)
	r.request, r.err, r.missing = q, err, result.Missing
	_, others := r.updateUnshared(l.supply.In(q.Segment))
	for _, other := range others {
		l.enqueue(other)
	}
	r.pending = len(q.Families) > 0 && (err != nil || r.missing != nil)
	if former.Sharing != q.Sharing || !slices.Equal(former.Ports, q.Ports) {
		l.supplyChanged = true // others may be able to share now
	}
	for _, h := range had {
		if former.Segment != q.Segment || !slices.ContainsFunc(result.Addresses, func(a alloc.Address) bool { return a.Address == h.Address }) {
			l.refresh(h.Address, former.Segment)
			l.supplyChanged = true
		}
	}
}

// updateUnshared updates the reason why an address isn't shared, and returns the owners whose reasons
// change as well, if it has changed.
func (r *record) updateUnshared(space *alloc.Allocator) (changed bool, others []alloc.Owner) {
	address, why := space.Unshared(r.request.Owner)
	changed = fmt.Sprint(why) != fmt.Sprint(r.unshared)
	if r.unshared = why; changed {
		others = space.Holders(address)
	}
	return changed, others
}

// serveWaiting retries pending requests, the oldest first, if the supply changed, and enqueues Services
// that may be ours now.
func (l *allocations) serveWaiting() {
	if !l.supplyChanged {
		return
	}
	l.supplyChanged = false
	for _, r := range l.records.waiting() {
		before, failed := l.supply.held(r.request), r.err != nil
		l.update(r, r.request)
		if !slices.Equal(before, l.supply.held(r.request)) || failed && r.err == nil {
			l.enqueue(r.request.Owner)
		}
	}
	for owner, r := range l.records {
		if r.unshared == nil {
			continue
		}
		if changed, _ := r.updateUnshared(l.supply.In(r.request.Segment)); changed {
			l.enqueue(owner)
		}
	}
	if l.foreign.showOther(l.supply.Untagged) {
		return
	}
	for owner := range l.left {
		l.enqueue(owner)
	}
	for owner, f := range l.foreign {
		if f.Claimable && !l.left[owner] {
			l.enqueue(owner)
		}
	}
}

// SetPools replaces the pools, which have distinct names. It returns the owners that have
// to be reconciled: all.
func (l *allocations) SetPools(pools []addressPool) []alloc.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.supply.setPools(pools)
	l.supplyChanged = true
	l.serveWaiting()
	return l.owners()
}

// owners returns the owners of all Services and LoadBalancers with a request, and of Services that
// other controllers serve, or that wait, in any order.
func (l *allocations) owners() []alloc.Owner {
	all := slices.AppendSeq(slices.Collect(maps.Keys(l.records)), maps.Keys(l.foreign))
	return slices.AppendSeq(all, maps.Keys(l.left))
}

// SetNamespace sets the labels of a namespace that exists, or was deleted. If that is new
// it returns the owners in it, which have to be reconciled.
func (l *allocations) SetNamespace(name string, now labels.Set, exists bool) []alloc.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.supply.setNamespace(name, now, exists) {
		return nil
	}
	l.supplyChanged = true
	l.serveWaiting()
	return slices.DeleteFunc(l.owners(), func(o alloc.Owner) bool { return o.Namespace != name })
}

// SetGroups replaces the groups.
func (l *allocations) SetGroups(groups []v1alpha1.LoadBalancerGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.supply.setGroups(groups) {
		return
	}
	for owner, r := range l.records {
		if !r.pending && l.supply.refuse(r.request) != nil {
			l.enqueue(owner) // keeps its address, and says why it would get no other
		}
	}
	l.supplyChanged = true
	l.serveWaiting()
}

// HasNamespace reports whether a namespace's labels are known. Before, a Request may get an
// address of a pool with lower priority.
func (l *allocations) HasNamespace(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.supply.namespaces[name]
	return known
}

// Usage returns how much of a pool is assigned; zero for an unknown pool.
func (l *allocations) Usage(pool string) alloc.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.supply.Untagged.Usage(pool)
}

// Waiting returns the number of pending requests, and of Services that wait though they aren't ours.
func (l *allocations) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records.waiting()) + len(l.left)
}

// adopted is the request of an object and the addresses in its status.
type adopted struct {
	addressRequest
	Addresses []netip.Addr
	// Foreign says that Fairlead hasn't written the status, Claimable that it may take the
	// Service over if pools contain the addresses, Named that the status has a host name.
	Foreign, Claimable, Named bool
	// Refused says why Fairlead doesn't take the Service over nevertheless; nil if it does.
	Refused error
}

// Adopt takes over the addresses whose objects list an owner, and those in statuses without such an
// object, after SetPools, SetNamespace and Observe, and before the first Request. If two owners that
// don't share have the same address the listed one keeps it, else the older one. Then pending
// requests are served, the oldest first. It returns the conflicts.
func (l *allocations) Adopt(objects []adopted) []alloc.Conflict {
	l.mu.Lock()
	defer l.mu.Unlock()
	holdings := map[lb.Segment][]alloc.Holding{}
	ours := slices.DeleteFunc(slices.Clone(objects), func(o adopted) bool { return o.Foreign })
	for _, o := range ours {
		l.records[o.Owner] = &record{request: o.addressRequest}
		listed := l.objects.of(o.Owner, o.Segment)
		held := slices.DeleteFunc(slices.Clone(o.Addresses), func(a netip.Addr) bool { return !slices.Contains(listed, a) })
		holdings[o.Segment] = append(holdings[o.Segment], alloc.Holding{
			Owner: o.Owner, Created: o.Created, Assigned: len(listed) > 0,
			Addresses: slices.Concat(held, oneOfFamily(listed, held), o.Addresses), Ports: o.Ports, Sharing: o.Sharing,
		})
	}
	var conflicts []alloc.Conflict
	for segment, held := range holdings {
		conflicts = append(conflicts, l.supply.In(segment).Adopt(held)...)
	}
	for _, o := range objects {
		if o.Foreign {
			l.setForeign(o.Owner, &o)
		}
	}
	for _, object := range l.objects.all() {
		l.refresh(addressIn(object))
	}
	for _, o := range ours {
		r := l.records[o.Owner]
		r.pending = len(l.supply.held(r.request)) < len(o.Families)
	}
	l.supplyChanged = true
	l.serveWaiting()
	return conflicts
}

// oneOfFamily returns the first address of each family of which others has none.
func oneOfFamily(all, others []netip.Addr) (first []netip.Addr) {
	for _, a := range all {
		if !slices.ContainsFunc(slices.Concat(others, first), func(o netip.Addr) bool { return alloc.FamilyOf(o) == alloc.FamilyOf(a) }) {
			first = append(first, a)
		}
	}
	return first
}

// unitMember is an owner with the labels that groups select by.
type unitMember struct {
	Owner alloc.Owner
	// Labels are the object's labels, Namespace its namespace's labels.
	Labels, Namespace labels.Set
	Class             string
}

// unit is a set of owners that share addresses, so that the same nodes have to serve them.
type unit struct {
	// Members are at least one, sorted.
	Members []unitMember
	// Addresses is the number of distinct addresses.
	Addresses int
}

// Units returns the units of all owners with addresses, sorted.
func (l *allocations) Units() (units []unit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[alloc.Owner]bool{}
	for _, owner := range slices.SortedFunc(maps.Keys(l.records), alloc.Owner.Compare) {
		if seen[owner] {
			continue
		}
		var members []unitMember
		addresses := map[netip.Addr]bool{}
		space := l.supply.In(l.records[owner].request.Segment)
		for _, o := range space.SharingGroup(owner) {
			seen[o] = true
			q := l.records[o].request
			members = append(members, unitMember{o, q.Labels, l.supply.namespaces[o.Namespace], q.Class})
			for _, h := range space.Of(o) {
				addresses[h.Address] = true
			}
		}
		if len(members) > 0 {
			units = append(units, unit{members, len(addresses)})
		}
	}
	return units
}
