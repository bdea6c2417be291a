// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// group returns the services that share an IPVS service, in the order of their VIPs: svc, if
// not nil, with the services of its firewall mark. It is whole unless there are others that
// only an earlier process knew.
func (p *Plane) group(vip lb.VIP, mark uint32, svc *lb.Service) (group []*lb.Service, whole bool) {
	if svc != nil {
		group = append(group, svc)
	}
	whole = true
	if mark == 0 {
		return group, whole
	}
	for other, e := range p.owned {
		if other == vip || e.mark != mark || familyOf(other.Address) != familyOf(vip.Address) {
			continue
		}
		if s, known := p.services[other]; known {
			group = append(group, s.Service)
		} else {
			whole = false
		}
	}
	slices.SortFunc(group, func(a, b *lb.Service) int { return a.VIP.Compare(b.VIP) })
	return group, whole
}

// sharing returns the other VIPs of a firewall mark.
func (p *Plane) sharing(vip lb.VIP, mark uint32) []lb.VIP {
	var others []lb.VIP
	for other, e := range p.owned {
		if mark != 0 && other != vip && e.mark == mark && familyOf(other.Address) == familyOf(vip.Address) {
			others = append(others, other)
		}
	}
	return others
}

// leave takes a VIP out of the IPVS service that it had with a mark, and deletes that unless
// others have it.
func (p *Plane) leave(vip lb.VIP, mark uint32) error {
	i := idOf(vip, mark)
	if len(p.sharing(vip, mark)) == 0 {
		return p.kernel.remove(i)
	}
	group, whole := p.group(vip, mark, nil)
	if !whole {
		return nil
	}
	is, err := p.kernel.read(i)
	if err != nil {
		return err
	}
	return p.kernel.program(is, describe(group, p.kernel.routesOf(group...).unreachable), false)
}
