// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// claims are the services of one object.
type claims struct {
	object  Object
	created time.Time
	// services have distinct names and VIPs; byVIP refers to them.
	services []lb.Service
	byVIP    map[lb.VIP]*lb.Service
	// addresses are the object's, whichever node serves it; moved says that it is not for this
	// node.
	addresses []netip.Addr
	moved     bool
}

// mark returns the firewall mark of an object's services; 0 for none.
func (c *claims) mark() uint32 {
	if len(c.services) == 0 {
		return 0
	}
	return c.services[0].FirewallMark
}

// backends is the number of backends of all services.
func (c *claims) backends() (n int) {
	for i := range c.services {
		n += len(c.services[i].Backends)
	}
	return n
}

// vipOwners decides which object has a VIP, and a firewall mark: the oldest of those that claim
// it.
type vipOwners struct {
	// limit and maxBackends are the node's room; backends are those of all owners.
	limit, maxBackends, backends int

	owners map[Object]claims
	// claimants of a VIP are sorted, its owner first.
	claimants map[lb.VIP][]Object
	// marked are the claimants of a firewall mark, sorted likewise. Only its owner is served: the
	// data plane would join the services of others with the owner's.
	marked map[uint32][]Object
	// served are the delivered services; overflow are VIPs for which there is no room.
	served   map[lb.VIP]*lb.Service
	overflow map[lb.VIP]bool
	// dirty are VIPs to check; the value is whether traffic has to be moved to other nodes if
	// the VIP has no claimant any more.
	dirty map[lb.VIP]bool
}

func newVIPOwners(services, backends int) *vipOwners {
	return &vipOwners{
		limit: services, maxBackends: backends, owners: map[Object]claims{}, claimants: map[lb.VIP][]Object{}, marked: map[uint32][]Object{},
		served: map[lb.VIP]*lb.Service{}, overflow: map[lb.VIP]bool{}, dirty: map[lb.VIP]bool{},
	}
}

// set replaces the claims of an object.
func (r *vipOwners) set(c claims) {
	before := r.owners[c.object]
	r.backends += c.backends() - before.backends()
	for i := range before.services {
		vip := before.services[i].VIP
		unclaim(r.claimants, vip, c.object)
		r.dirty[vip] = c.moved && slices.Contains(c.addresses, vip.Address)
	}
	if mark := before.mark(); mark != 0 {
		unclaim(r.marked, mark, c.object)
		r.markDirty(mark)
	}
	if len(c.services) == 0 {
		delete(r.owners, c.object)
		return
	}
	c.byVIP = make(map[lb.VIP]*lb.Service, len(c.services))
	for i := range c.services {
		c.byVIP[c.services[i].VIP] = &c.services[i]
	}
	r.owners[c.object] = c
	for i := range c.services {
		vip := c.services[i].VIP
		r.dirty[vip] = false
		r.claimants[vip] = r.claim(r.claimants[vip], c.object)
	}
	if mark := c.mark(); mark != 0 {
		r.marked[mark] = r.claim(r.marked[mark], c.object)
		r.markDirty(mark)
	}
}

// claim adds an object to the sorted claimants of a VIP or mark.
func (r *vipOwners) claim(claimants []Object, o ...Object) []Object {
	claimants = append(claimants, o...)
	slices.SortFunc(claimants, func(a, b Object) int {
		return cmp.Or(r.owners[a].created.Compare(r.owners[b].created), a.Compare(b))
	})
	return claimants
}

// unclaim removes an object from the claimants of a VIP or mark.
func unclaim[K comparable](claimants map[K][]Object, of K, o Object) {
	claimants[of] = slices.DeleteFunc(claimants[of], func(p Object) bool { return p == o })
	if len(claimants[of]) == 0 {
		delete(claimants, of)
	}
}

// markDirty marks the VIPs of all claimants of a firewall mark: it may have another owner.
func (r *vipOwners) markDirty(mark uint32) {
	for _, o := range r.marked[mark] {
		for i := range r.owners[o].services {
			vip := r.owners[o].services[i].VIP
			if _, dirty := r.dirty[vip]; !dirty {
				r.dirty[vip] = false
			}
		}
	}
}

// service returns the service of a VIP; nil without claimant or room, or if its owner isn't the
// owner of its firewall mark.
func (r *vipOwners) service(vip lb.VIP) *lb.Service {
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

// flush returns the changes since the last call. Services are removed first, to make room for
// others.
func (r *vipOwners) flush() (c Change) {
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
			c.Leaving = append(c.Leaving, vip)
		} else {
			c.Removed = append(c.Removed, vip)
		}
	}
	for _, vip := range vips {
		r.serve(vip, &c)
	}
	clear(r.dirty)
	return c
}

// fit chooses the VIPs for which there is no room: those of the youngest objects, whatever was
// served before, so that all nodes choose alike, also after a restart.
func (r *vipOwners) fit() {
	before := r.overflow
	r.overflow = map[lb.VIP]bool{}
	if len(r.claimants) > r.limit || r.backends > r.maxBackends {
		services, backends := 0, 0
		for _, o := range r.claim(slices.Collect(maps.Keys(r.owners))) {
			for i := range r.owners[o].services {
				s := &r.owners[o].services[i]
				if r.service(s.VIP) != s {
					continue // another object has it
				}
				if services == r.limit || backends+len(s.Backends) > r.maxBackends {
					r.overflow[s.VIP] = true
					continue
				}
				services++
				backends += len(s.Backends)
			}
		}
	}
	for _, changed := range []map[lb.VIP]bool{before, r.overflow} {
		for vip := range changed {
			if _, dirty := r.dirty[vip]; !dirty && before[vip] != r.overflow[vip] {
				r.dirty[vip] = false
			}
		}
	}
}

// serve adds the service of a VIP to the change if it differs.
func (r *vipOwners) serve(vip lb.VIP, c *Change) {
	s, before := r.service(vip), r.served[vip]
	if s == nil || s.Equal(before) {
		return
	}
	r.served[vip] = s
	c.Changed = append(c.Changed, *s)
}

// services returns the delivered services, sorted by VIP.
func (r *vipOwners) services() []lb.Service {
	all := make([]lb.Service, 0, len(r.served))
	for _, vip := range slices.SortedFunc(maps.Keys(r.served), lb.VIP.Compare) {
		all = append(all, *r.served[vip])
	}
	return all
}

// problems returns those of objects whose firewall marks or VIPs others own, or that exceed the
// limit, in the order of marks and VIPs, up to maxProblems of each object.
func (r *vipOwners) problems() (all []Problem) {
	found := map[Object]int{}
	add := func(o Object, format string, args ...any) {
		if found[o]++; found[o] <= maxProblems {
			all = append(all, Problem{o, fmt.Sprintf(format, args...)})
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(r.marked)) {
		for _, o := range r.marked[mark][1:] {
			add(o, "firewall mark %d belongs to %s, which is older: not served", mark, r.marked[mark][0])
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
			add(objects[0], "%s: older objects have %d services or %d backends: raise dataplane.services or dataplane.backends",
				vip, r.limit, r.maxBackends)
		}
	}
	return all
}
