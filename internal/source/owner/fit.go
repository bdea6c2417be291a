// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"maps"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// usage has the entries that services take in the tables of a node.
type usage [3]int

// The tables.
const (
	services = iota
	backends
	prefixes
)

// maxPrefixes is the size of the table of source prefixes.
const maxPrefixes = 1 << 17

func usageOf(s *lb.Service) usage {
	u := usage{services: 1, backends: len(s.Backends)}
	if n := len(s.Sources.Allow) + len(s.Sources.Deny); n > 0 {
		u[prefixes] = n + 1 // and the prefix of all others
	}
	return u
}

// add adds a usage n times.
func (u *usage) add(o usage, n int) {
	for i := range u {
		u[i] += n * o[i]
	}
}

// fits reports whether a usage leaves room for another one.
func (u usage) fits(o, room usage) bool {
	for i := range u {
		if u[i]+o[i] > room[i] {
			return false
		}
	}
	return true
}

// fit chooses the VIPs that exceed the node's room, whether or not they were served before, so that
// all nodes choose alike, also after a restart. Each namespace has a share of the room, which its
// oldest objects get; objects of others take none of it, however old they are. The rest is for the
// oldest objects of namespaces that demand more.
func (r *VIPs) fit() {
	before := r.overflow
	r.overflow = map[lb.VIP]bool{}
	if !r.usage.fits(usage{}, r.room) {
		var over []*lb.Service
		used, total := map[string]usage{}, usage{}
		all := r.byAge()
		shares := r.shares(all)
		for _, s := range all {
			u := used[s.Namespace]
			if !u.fits(usageOf(s), shares[s.Namespace]) {
				over = append(over, s)
				continue
			}
			u.add(usageOf(s), 1)
			total.add(usageOf(s), 1)
			used[s.Namespace] = u
		}
		for _, s := range over {
			if total.fits(usageOf(s), r.room) {
				total.add(usageOf(s), 1)
			} else {
				r.overflow[s.VIP] = true
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

// byAge returns the services that own their VIPs, the oldest first. No VIP is in overflow.
func (r *VIPs) byAge() (all []*lb.Service) {
	for _, o := range r.claim(slices.Collect(maps.Keys(r.owners))) {
		for i := range r.owners[o].Services {
			if s := &r.owners[o].Services[i]; r.service(s.VIP) == s {
				all = append(all, s)
			}
		}
	}
	return all
}

// shares returns the share of each namespace.
func (r *VIPs) shares(all []*lb.Service) map[string]usage {
	demands := map[string]usage{}
	for _, s := range all {
		u := demands[s.Namespace]
		u.add(usageOf(s), 1)
		demands[s.Namespace] = u
	}
	shares := map[string]usage{}
	names := slices.Sorted(maps.Keys(demands))
	for i, room := range r.room {
		list := make([]int, len(names))
		for n, name := range names {
			list[n] = demands[name][i]
		}
		for n, share := range lb.Share(room, list) {
			u := shares[names[n]]
			u[i] = share
			shares[names[n]] = u
		}
	}
	return shares
}
