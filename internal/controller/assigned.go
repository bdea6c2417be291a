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

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// entryOf returns the entry of an owner in the objects of its addresses.
func entryOf(q addressRequest) v1alpha1.AddressOwner {
	e := v1alpha1.AddressOwner{Kind: q.Owner.Kind, Namespace: q.Owner.Namespace, Name: q.Owner.Name, ResourceVersion: q.Version}
	if q.Sharing.Key != "" {
		e.Sharing = &v1alpha1.AddressSharing{Key: q.Sharing.Key, Mode: q.Sharing.Mode}
		for _, p := range q.Ports {
			e.Sharing.Ports = append(e.Sharing.Ports, p.String())
		}
	}
	return e
}

// ownerIn returns the owner of an entry.
func ownerIn(e v1alpha1.AddressOwner) alloc.Owner {
	return alloc.Owner{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
}

// entryIn returns the entry of an owner, nil for none.
func entryIn(object *v1alpha1.AssignedAddress, owner alloc.Owner) *v1alpha1.AddressOwner {
	if object == nil {
		return nil
	}
	if i := slices.IndexFunc(object.Spec.Owners, func(e v1alpha1.AddressOwner) bool { return ownerIn(e) == owner }); i >= 0 {
		return &object.Spec.Owners[i]
	}
	return nil
}

// withoutEntry returns an object's entries of other owners.
func withoutEntry(object *v1alpha1.AssignedAddress, owner alloc.Owner) []v1alpha1.AddressOwner {
	return slices.DeleteFunc(slices.Clone(object.Spec.Owners), func(e v1alpha1.AddressOwner) bool { return ownerIn(e) == owner })
}

// blocking returns the owners of an address with which another one can't share it.
func blocking(object *v1alpha1.AssignedAddress, e v1alpha1.AddressOwner) (owners []alloc.Owner) {
	for _, other := range withoutEntry(object, ownerIn(e)) {
		a, b := e.Sharing, other.Sharing
		if a == nil || b == nil || a.Key != b.Key || a.Mode != b.Mode || e.Namespace != other.Namespace ||
			slices.ContainsFunc(a.Ports, func(p string) bool { return slices.Contains(b.Ports, p) }) {
			owners = append(owners, ownerIn(other))
		}
	}
	return owners
}

// isNewer reports whether a version of an object is known to be newer than another one. "" is the
// version of an object that doesn't exist, than which nothing is newer.
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return version == "" || err == nil && order > 0
}

// objectName returns the name of an address's object.
func objectName(a netip.Addr, s lb.Segment) string {
	return v1alpha1.AssignedAddressName(a, apiSegment(s))
}

func apiSegment(s lb.Segment) *v1alpha1.Segment {
	if !s.Tagged() {
		return nil
	}
	return &v1alpha1.Segment{Type: s.Type.String(), ID: int64(s.ID)}
}

// addressIn returns the address of an object, and its network.
func addressIn(object *v1alpha1.AssignedAddress) (a netip.Addr, s lb.Segment) {
	a, _ = netip.ParseAddr(string(object.Spec.Address))
	if in := object.Spec.Segment; in != nil {
		_ = s.Type.UnmarshalText([]byte(in.Type)) // the schema admits no other types
		s.ID = uint32(in.ID)
	}
	return a, s
}

// addressObjects are the newest known objects of addresses, which are never changed. Methods may be called
// concurrently.
type addressObjects struct {
	mu     sync.Mutex
	byName map[string]*v1alpha1.AssignedAddress
	// listed has the names of the objects that list an owner.
	listed map[alloc.Owner]map[string]bool
}

// get returns an object, nil for none.
func (o *addressObjects) get(name string) *v1alpha1.AssignedAddress {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byName[name]
}

// all returns all objects, in any order.
func (o *addressObjects) all() []*v1alpha1.AssignedAddress {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.byName))
}

// listing returns the objects that list an owner, by name.
func (o *addressObjects) listing(owner alloc.Owner) (objects []*v1alpha1.AssignedAddress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(o.listed[owner])) {
		objects = append(objects, o.byName[name])
	}
	return objects
}

// of returns the addresses of a network whose objects list an owner, sorted.
func (o *addressObjects) of(owner alloc.Owner, s lb.Segment) (all []netip.Addr) {
	for _, object := range o.listing(owner) {
		if a, in := addressIn(object); in == s {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// set replaces an object, nil for none. Only Observe calls it, with the lock of the allocations held: the
// allocator has to follow.
func (o *addressObjects) set(name string, object *v1alpha1.AssignedAddress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if former := o.byName[name]; former != nil {
		for _, e := range former.Spec.Owners {
			if delete(o.listed[ownerIn(e)], name); len(o.listed[ownerIn(e)]) == 0 {
				delete(o.listed, ownerIn(e))
			}
		}
		delete(o.byName, name)
	}
	if object == nil {
		return
	}
	o.byName[name] = object
	for _, e := range object.Spec.Owners {
		if o.listed[ownerIn(e)] == nil {
			o.listed[ownerIn(e)] = map[string]bool{}
		}
		o.listed[ownerIn(e)][name] = true
	}
}

// claim returns the object of an address to be written so that a write of the status of the request's owner
// may have the address, or nil if there is nothing to write; shown says that the status has it. Other
// owners that can't share it have to leave first.
func (o *addressObjects) claim(q addressRequest, a netip.Addr, shown bool) (object *v1alpha1.AssignedAddress, blockedBy []alloc.Owner) {
	name, entry := objectName(a, q.Segment), entryOf(q)
	known := o.get(name)
	if known == nil {
		object = &v1alpha1.AssignedAddress{ObjectMeta: metav1.ObjectMeta{Name: name}}
		object.Spec = v1alpha1.AssignedAddressSpec{Address: v1alpha1.IPAddress(a.String()), Segment: apiSegment(q.Segment), Owners: []v1alpha1.AddressOwner{entry}}
		return object, nil
	}
	if e := entryIn(known, q.Owner); e != nil {
		if equality.Semantic.DeepEqual(e.Sharing, entry.Sharing) && (shown || e.ResourceVersion == entry.ResourceVersion) {
			return nil, nil
		}
		if isNewer(e.ResourceVersion, entry.ResourceVersion) {
			return nil, []alloc.Owner{q.Owner} // another controller's, of a version that isn't in the cache yet
		}
	}
	if blockedBy = blocking(known, entry); len(blockedBy) > 0 {
		return nil, blockedBy
	}
	object = known.DeepCopy()
	object.Spec.Retained, object.Spec.Owners = nil, append(withoutEntry(known, q.Owner), entry)
	return object, nil
}

// Observe records the newest version of an address's object; nil if there is none. Former owners, and
// those that wait for the address, are enqueued.
func (l *allocations) Observe(name string, object *v1alpha1.AssignedAddress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	former := l.objects.get(name)
	known := cmp.Or(object, former)
	if known == nil {
		return
	}
	a, s := addressIn(known)
	if !a.IsValid() || objectName(a, s) != name {
		return // the controller doesn't write such objects
	}
	if object != nil && object.Spec.Retained != nil {
		if r := object.Spec.Retained; r.Released.After(l.now()) { // the clock was ahead, or another leader's is
			r.Released = metav1.NewTime(l.now().Truncate(time.Second))
		}
	}
	l.objects.set(name, object)
	l.refresh(a, s)
	l.supplyChanged = l.supplyChanged || former != nil // a new object takes its address from others
	l.serveWaiting()
	l.supply.Prune()
}

// refresh has the allocator of an address know for whom its object, or another controller, reserves
// it, and enqueues the owners whose entries in the object have to follow.
func (l *allocations) refresh(a netip.Addr, s lb.Segment) {
	space, object := l.supply.In(s), l.objects.get(objectName(a, s))
	holders := space.Holders(a)
	for _, owner := range holders {
		if entryIn(object, owner) == nil {
			l.enqueue(owner)
		}
	}
	if object != nil {
		for _, e := range object.Spec.Owners {
			if !slices.Contains(holders, ownerIn(e)) {
				l.enqueue(ownerIn(e))
			}
		}
	}
	space.Unreserve(a)
	if r, reserved := l.reservation(a, s, object); reserved {
		space.Reserve(a, r)
	}
}

// reservation returns for whom an address without holder is reserved.
func (l *allocations) reservation(a netip.Addr, s lb.Segment, object *v1alpha1.AssignedAddress) (r alloc.Reservation, reserved bool) {
	if host, is := l.hosts[a]; is && !s.Tagged() {
		return alloc.Reservation{Err: refusal(alloc.InUse, "address %s: an address of %s", a, host)}, true
	}
	if other, found := l.foreign.at(a); found && !s.Tagged() {
		return alloc.Reservation{Err: refusal(alloc.Taken, "address %s: in the status of %s, which another controller serves", a, other)}, true
	}
	switch {
	case object == nil:
		return alloc.Reservation{}, false
	case len(object.Spec.Owners) > 0:
		owner := ownerIn(object.Spec.Owners[0])
		return alloc.Reservation{
			For: owner, Namespace: l.records[owner] == nil, // deleted, and about to be released
			Err: refusal(alloc.Taken, "address %s: assigned to %s", a, owner),
		}, true
	case object.Spec.Retained != nil:
		to := object.Spec.Retained
		return alloc.Reservation{
			For: alloc.Owner{Kind: to.Kind, Namespace: to.Namespace, Name: to.Name}, Namespace: true,
			Err: retainedError(a, to, l.supply.retentionOf(object)),
		}, true
	}
	return alloc.Reservation{}, false
}

// retainedError is the error for owners of other namespaces than a retained address's.
func retainedError(a netip.Addr, to *v1alpha1.RetainedAddress, retention time.Duration) *alloc.Error {
	return refusal(alloc.Retained, "address %s: retained for namespace %s, whose object released it, until %s (retainFor of its pool)",
		a, to.Namespace, to.Released.Add(retention).UTC().Format(time.RFC3339))
}

func refusal(reason, format string, args ...any) *alloc.Error {
	return &alloc.Error{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// former is the object of an address that an owner doesn't have any more, without the owner.
type former struct {
	*v1alpha1.AssignedAddress
	// version is the version of the owner to whose status the address may be added.
	version string
}

// Former returns the objects that list an owner but whose addresses the owner doesn't have any more, or
// that are blocked, as they are to be written. Those without owners and retention are to be deleted.
func (l *allocations) Former(owner alloc.Owner, blocked ...netip.Addr) (all []former) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, object := range l.objects.listing(owner) {
		a, s := addressIn(object)
		if slices.Contains(l.supply.In(s).Holders(a), owner) && !slices.Contains(blocked, a) {
			continue
		}
		f := former{object.DeepCopy(), entryIn(object, owner).ResourceVersion}
		if f.Spec.Owners = withoutEntry(object, owner); len(f.Spec.Owners) == 0 && l.supply.retentionOf(f.AssignedAddress) > 0 {
			released := metav1.NewTime(l.now().Truncate(time.Second)) // as it is stored
			f.Spec.Retained = &v1alpha1.RetainedAddress{Namespace: owner.Namespace, Kind: owner.Kind, Name: owner.Name, Released: released}
		}
		all = append(all, f)
	}
	return all
}

// Expired returns the objects of addresses without owners that are not retained any more, and the time
// until there are others; 0 for never.
func (l *allocations) Expired() (over []*v1alpha1.AssignedAddress, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	retained := map[string][]*v1alpha1.AssignedAddress{}
	for _, object := range l.objects.all() {
		if r := object.Spec.Retained; len(object.Spec.Owners) == 0 && r != nil {
			retained[r.Namespace] = append(retained[r.Namespace], object)
		} else if len(object.Spec.Owners) == 0 {
			over = append(over, object)
		}
	}
	for _, all := range retained {
		slices.SortFunc(all, func(a, b *v1alpha1.AssignedAddress) int {
			return cmp.Or(b.Spec.Retained.Released.Compare(a.Spec.Retained.Released.Time), cmp.Compare(a.Name, b.Name))
		})
		for i, object := range all {
			left := object.Spec.Retained.Released.Add(l.supply.retentionOf(object)).Sub(l.now())
			if i >= spec.MaxRetained || left <= 0 {
				over = append(over, object)
			} else {
				next = sooner(next, left)
			}
		}
	}
	return over, next
}
