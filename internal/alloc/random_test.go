// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// universe is how many addresses of each family there are in histories.
const universe = 16

func (h *history) owner() alloc.Owner {
	kind := "Service"
	if h.random.IntN(8) == 0 {
		kind = "LoadBalancer"
	}
	return alloc.Owner{Kind: kind, Namespace: h.word("a", "b"), Name: fmt.Sprint(h.random.IntN(8))}
}

func (h *history) word(words ...string) string { return words[h.random.IntN(len(words))] }

func (h *history) address(f alloc.Family) netip.Addr {
	n := byte(h.random.IntN(universe))
	if f == alloc.IPv4 {
		return netip.AddrFrom4([4]byte{10, 0, 0, n})
	}
	return netip.AddrFrom16([16]byte{0xfd, 15: n})
}

// spec returns a request that an owner may make.
func (h *history) spec(owner alloc.Owner) alloc.Request {
	families := [][]alloc.Family{{alloc.IPv4}, {alloc.IPv6}, {alloc.IPv4, alloc.IPv6}, {alloc.IPv6, alloc.IPv4}}
	r := alloc.Request{
		Owner:    owner,
		Families: families[h.random.IntN(len(families))],
		Partial:  h.random.IntN(3) == 0,
		Sharing:  alloc.Sharing{Key: h.word("", "", "k", "k", "l"), Mode: h.word("Cluster", "Cluster", "Local")},
	}
	for _, f := range []alloc.Family{alloc.IPv4, alloc.IPv6} {
		if h.random.IntN(8) == 0 {
			r.Wanted = append(r.Wanted, h.address(f))
		}
	}
	for _, n := range h.random.Perm(4) {
		if h.random.IntN(4) > 0 {
			r.Pools = append(r.Pools, fmt.Sprint("p", n))
		}
	}
	if h.random.IntN(8) == 0 {
		r.Pool = h.word("p0", "p1", "p2", "p3")
	}
	for _, p := range []alloc.Port{{Number: 80, Protocol: lb.TCP}, {Number: 443, Protocol: lb.TCP}, {Number: 443, Protocol: lb.UDP}, {Number: 53, Protocol: lb.UDP}} {
		if h.random.IntN(3) == 0 {
			r.Ports = append(r.Ports, p)
		}
	}
	return r
}

// pools are up to four, which overlap.
func (h *history) pools() (pools []modelPool) {
	for _, n := range h.random.Perm(4) {
		if h.random.IntN(6) == 0 {
			continue
		}
		p := modelPool{Pool: alloc.Pool{Name: fmt.Sprint("p", n), Automatic: h.random.IntN(4) > 0, External: h.random.IntN(5) == 0}}
		for range 1 + h.random.IntN(3) {
			h.addRange(&p)
		}
		slices.SortFunc(p.addresses, netip.Addr.Compare)
		p.addresses = slices.Compact(p.addresses)
		pools = append(pools, p)
	}
	return pools
}

func (h *history) addRange(p *modelPool) {
	f := []alloc.Family{alloc.IPv4, alloc.IPv6}[h.random.IntN(2)]
	from, to := h.address(f), h.address(f)
	if to.Less(from) {
		from, to = to, from
	}
	r, err := alloc.ParseRange(from.String() + "-" + to.String())
	if err != nil {
		return
	}
	p.Ranges = append(p.Ranges, r)
	for a := from; !to.Less(a); a = a.Next() {
		p.addresses = append(p.addresses, a)
	}
}
