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

// claims are the services that follow from one object.
type claims struct {
	object  Object
	created time.Time
	// services have distinct names and VIPs.
	services []lb.Service
	// addresses are the object's, whoever serves them; moved says that it is not for
	// this node.
	addresses []netip.Addr
	moved     bool
}

// register knows who claims which VIP. Of several objects that claim one the
// oldest has it, as it had it first.
type register struct {
	most   int
	owners map[Object]claims
	// claimants of a VIP are sorted, who has it first.
	claimants map[lb.VIP][]Object
	// served is what has been handed over; left out are those beyond most.
	served map[lb.VIP]*lb.Service
	left   map[lb.VIP]bool
	// touched are to be looked at; the value is whether traffic is to be moved away
	// where nobody claims the VIP any more.
	touched map[lb.VIP]bool
}

func newRegister(most int) *register {
	return &register{
		most: most, owners: map[Object]claims{}, claimants: map[lb.VIP][]Object{},
		served: map[lb.VIP]*lb.Service{}, left: map[lb.VIP]bool{}, touched: map[lb.VIP]bool{},
	}
}

// set replaces what an object claims.
func (r *register) set(c claims) {
	before := r.owners[c.object]
	for i := range before.services {
		vip := before.services[i].VIP
		r.claimants[vip] = slices.DeleteFunc(r.claimants[vip], func(o Object) bool { return o == c.object })
		if len(r.claimants[vip]) == 0 {
			delete(r.claimants, vip)
		}
		r.touched[vip] = c.moved && slices.Contains(c.addresses, vip.Address)
	}
	if len(c.services) == 0 {
		delete(r.owners, c.object)
		return
	}
	r.owners[c.object] = c
	for i := range c.services {
		vip := c.services[i].VIP
		r.touched[vip] = false
		r.claimants[vip] = append(r.claimants[vip], c.object)
		slices.SortFunc(r.claimants[vip], func(a, b Object) int {
			return cmp.Or(r.owners[a].created.Compare(r.owners[b].created), a.Compare(b))
		})
	}
}

// of returns the service that has a VIP; nil if nobody claims it.
func (r *register) of(vip lb.VIP) *lb.Service {
	if len(r.claimants[vip]) == 0 {
		return nil
	}
	own := r.owners[r.claimants[vip][0]].services
	for i := range own {
		if own[i].VIP == vip {
			return &own[i]
		}
	}
	return nil
}

// flush returns what has changed since the last time. Services go before others
// come: they make room.
func (r *register) flush() (c Change) {
	vips := slices.SortedFunc(maps.Keys(r.touched), lb.VIP.Compare)
	for _, vip := range vips {
		if r.of(vip) != nil {
			continue
		}
		delete(r.left, vip)
		if r.served[vip] == nil {
			continue
		}
		delete(r.served, vip)
		if r.touched[vip] {
			c.Left = append(c.Left, vip)
		} else {
			c.Removed = append(c.Removed, vip)
		}
	}
	for _, vip := range vips {
		r.serve(vip, &c)
	}
	for vip := range r.left {
		if len(r.served) >= r.most {
			break
		}
		r.serve(vip, &c)
	}
	clear(r.touched)
	return c
}

// serve hands over the service of a VIP if it is another than before, and there is
// room for it.
func (r *register) serve(vip lb.VIP, c *Change) {
	s, before := r.of(vip), r.served[vip]
	switch {
	case s == nil || s.Equal(before):
		return
	case before == nil && len(r.served) >= r.most:
		r.left[vip] = true
		return
	}
	delete(r.left, vip)
	r.served[vip] = s
	c.Changed = append(c.Changed, *s)
}

// services are those that are served, sorted by VIP.
func (r *register) services() []lb.Service {
	all := make([]lb.Service, 0, len(r.served))
	for _, vip := range slices.SortedFunc(maps.Keys(r.served), lb.VIP.Compare) {
		all = append(all, *r.served[vip])
	}
	return all
}

// problems are those of objects that want what others have.
func (r *register) problems() (all []Problem) {
	for vip, objects := range r.claimants {
		for _, o := range objects[1:] {
			all = append(all, Problem{o, fmt.Sprintf("%s is %s's, which is older", vip, objects[0])})
		}
		if r.left[vip] {
			all = append(all, Problem{objects[0], fmt.Sprintf("%s: this data plane serves at most %d services", vip, r.most)})
		}
	}
	return all
}
