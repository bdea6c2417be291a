// SPDX-License-Identifier: Apache-2.0

// Package owner decides which objects of an API server a node serves where several want the same:
// a VIP, a firewall mark or the room of the node. The oldest object gets it, on all nodes, but each
// namespace has a share of the room (fit.go). The sources that follow an API server call it.
package owner

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// Claims are the services of one object.
type Claims struct {
	Object  source.Object
	Created time.Time
	// Services have distinct names and VIPs. Their fields Namespace and Created are set by VIPs.Set.
	Services []lb.Service
	// Addresses are the object's, whichever node serves it; Moved says that it is not for this
	// node.
	Addresses []netip.Addr
	Moved     bool

	// byVIP refers to Services.
	byVIP map[lb.VIP]*lb.Service
}

// mark returns the firewall mark of an object's services; 0 for none.
func (c *Claims) mark() uint32 {
	if len(c.Services) == 0 {
		return 0
	}
	return c.Services[0].FirewallMark
}

// VIPs decides which object has a VIP, and a firewall mark: the oldest of those that claim
// it.
type VIPs struct {
	// room is the node's, usage the sum over all claims.
	room, usage usage

	owners map[source.Object]Claims
	// claimants of a VIP are sorted, its owner first.
	claimants map[lb.VIP][]source.Object
	// marked are the claimants of a firewall mark, sorted likewise. Only its owner is served: the
	// data plane would join the services of others with the owner's.
	marked map[uint32][]source.Object
	// served are the delivered services; overflow are VIPs for which there is no room.
	served   map[lb.VIP]*lb.Service
	overflow map[lb.VIP]bool
	// dirty are VIPs to check; the value is whether traffic has to be moved to other nodes if
	// the VIP has no claimant any more.
	dirty map[lb.VIP]bool
}

// New returns VIPs without claims, for a node with room for that many services, and backends of all
// services together.
func New(services, backends int) *VIPs {
	return &VIPs{
		room: usage{services, backends, maxPrefixes}, owners: map[source.Object]Claims{}, claimants: map[lb.VIP][]source.Object{}, marked: map[uint32][]source.Object{},
		served: map[lb.VIP]*lb.Service{}, overflow: map[lb.VIP]bool{}, dirty: map[lb.VIP]bool{},
	}
}

// Set replaces the claims of an object.
func (r *VIPs) Set(c Claims) {
	before := r.owners[c.Object]
	for i := range c.Services {
		r.usage.add(usageOf(&c.Services[i]), 1)
	}
	for i := range before.Services {
		r.usage.add(usageOf(&before.Services[i]), -1)
		vip := before.Services[i].VIP
		unclaim(r.claimants, vip, c.Object)
		r.dirty[vip] = c.Moved && slices.Contains(c.Addresses, vip.Address)
	}
	if mark := before.mark(); mark != 0 {
		unclaim(r.marked, mark, c.Object)
		r.markDirty(mark)
	}
	if len(c.Services) == 0 {
		delete(r.owners, c.Object)
		return
	}
	c.byVIP = make(map[lb.VIP]*lb.Service, len(c.Services))
	for i := range c.Services {
		s := &c.Services[i]
		s.Namespace, s.Created = c.Object.Namespace, max(c.Created.Unix(), 0)
		c.byVIP[s.VIP] = s
	}
	r.owners[c.Object] = c
	for i := range c.Services {
		vip := c.Services[i].VIP
		r.dirty[vip] = false
		r.claimants[vip] = r.claim(r.claimants[vip], c.Object)
	}
	if mark := c.mark(); mark != 0 {
		r.marked[mark] = r.claim(r.marked[mark], c.Object)
		r.markDirty(mark)
	}
}

// claim adds an object to the sorted claimants of a VIP or mark.
func (r *VIPs) claim(claimants []source.Object, o ...source.Object) []source.Object {
	claimants = append(claimants, o...)
	slices.SortFunc(claimants, func(a, b source.Object) int {
		return cmp.Or(r.owners[a].Created.Compare(r.owners[b].Created), a.Compare(b))
	})
	return claimants
}

// unclaim removes an object from the claimants of a VIP or mark.
func unclaim[K comparable](claimants map[K][]source.Object, of K, o source.Object) {
	claimants[of] = slices.DeleteFunc(claimants[of], func(p source.Object) bool { return p == o })
	if len(claimants[of]) == 0 {
		delete(claimants, of)
	}
}

// markDirty marks the VIPs of all claimants of a firewall mark: it may have another owner.
func (r *VIPs) markDirty(mark uint32) {
	for _, o := range r.marked[mark] {
		for i := range r.owners[o].Services {
			vip := r.owners[o].Services[i].VIP
			if _, dirty := r.dirty[vip]; !dirty {
				r.dirty[vip] = false
			}
		}
	}
}

// service returns the service of a VIP; nil without claimant or room, or if its owner isn't the
// owner of its firewall mark.
func (r *VIPs) service(vip lb.VIP) *lb.Service {
	if len(r.claimants[vip]) == 0 || r.overflow[vip] {
		return nil
	}
	owner := r.claimants[vip][0]
	s := r.owners[owner].byVIP[vip]
	if s.FirewallMark != 0 && r.marked[s.FirewallMark][0] != owner {
		return nil
	}
	return s
}

// Flush returns the changes since the last call. Services are removed first, to make room for
// others.
func (r *VIPs) Flush() (u source.Update) {
	r.fit()
	vips := slices.SortedFunc(maps.Keys(r.dirty), lb.VIP.Compare)
	for _, vip := range vips {
		if r.service(vip) != nil {
			continue
		}
		if r.served[vip] == nil {
			continue
		}
		delete(r.served, vip)
		if r.dirty[vip] {
			u.Leaving = append(u.Leaving, vip)
		} else {
			u.Removed = append(u.Removed, vip)
		}
	}
	for _, vip := range vips {
		r.serve(vip, &u)
	}
	clear(r.dirty)
	return u
}

// serve adds the service of a VIP to the change if it differs.
func (r *VIPs) serve(vip lb.VIP, u *source.Update) {
	s, before := r.service(vip), r.served[vip]
	if s == nil || s.Equal(before) {
		return
	}
	r.served[vip] = s
	u.Changed = append(u.Changed, *s)
}

// Empty reports whether no service is delivered.
func (r *VIPs) Empty() bool { return len(r.served) == 0 }

// Services returns the delivered services, sorted by VIP.
func (r *VIPs) Services() []lb.Service {
	all := make([]lb.Service, 0, len(r.served))
	for _, vip := range slices.SortedFunc(maps.Keys(r.served), lb.VIP.Compare) {
		all = append(all, *r.served[vip])
	}
	return all
}

// Problems returns the problems of objects whose firewall marks or VIPs others own, or that exceed
// the limit, in the order of marks and VIPs, up to source.MaxProblems of each object.
func (r *VIPs) Problems() (all []v1alpha1.NodeProblem) {
	found := map[source.Object]int{}
	add := func(o source.Object, format string, args ...any) {
		if found[o]++; found[o] <= source.MaxProblems {
			all = append(all, v1alpha1.NodeProblem{Object: o.String(), Message: fmt.Sprintf(format, args...)})
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(r.marked)) {
		for _, o := range r.marked[mark][1:] {
			add(o, "the firewall mark belongs to %s, which is older: not served", r.marked[mark][0])
		}
	}
	var vips []lb.VIP
	for vip, objects := range r.claimants {
		if len(objects) > 1 || r.overflow[vip] {
			vips = append(vips, vip)
		}
	}
	slices.SortFunc(vips, lb.VIP.Compare)
	for _, vip := range vips {
		objects := r.claimants[vip]
		for _, o := range objects[1:] {
			add(o, "%s belongs to %s, which is older", vip, objects[0])
		}
		if r.overflow[vip] {
			add(objects[0], "%s: the node is full (%d services, %d backends or %d source prefixes), and older objects of the namespace use its share: "+
				"raise dataplane.services or dataplane.backends", vip, r.room[services], r.room[backends], r.room[prefixes])
		}
	}
	return all
}
