// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/test/fuzzrand"
)

// version is an object as the API server has it at one time.
type version struct {
	number  int // greater than all numbers of earlier versions
	request addressRequest
	shown   []netip.Addr
}

// write is one that was sent, on top of a version: it comes true at any time later,
// if the object is still of that version.
type write struct {
	owner alloc.Owner
	base  int
	shown []netip.Addr
}

// history is an API server and a controller between which everything goes wrong that
// can: caches are behind, writes are refused, answers are lost, and writes come true
// long after their sender has been replaced.
type history struct {
	*testing.T
	rand    *rand.Rand
	clock   int
	pools   []addressPool
	objects map[alloc.Owner][]version // all versions, none of deleted ones
	late    []write
	// said has the requests of owners since they show an address.
	said map[netip.Addr]map[alloc.Owner][]addressRequest
	// read is the version that the controller's cache had last.
	read        map[alloc.Owner]int
	allocations *allocations
}

// No fault lets two owners show an address that they can't share. When faults end, all owners get
// the addresses that are free.
func TestAddressOwnersUnique(t *testing.T) {
	const histories, steps = 500, 400
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &history{T: t, rand: rand.New(rand.NewPCG(seed, 0)), objects: map[alloc.Owner][]version{}, said: map[netip.Addr]map[alloc.Owner][]addressRequest{}}
			h.setPools()
			h.takeOver()
			for range steps {
				h.step()
			}
			h.settle()
		})
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

func (h *history) step() {
	switch n := h.rand.IntN(100); {
	case n < 15:
		h.edit(h.owner())
	case n < 22:
		o := h.owner()
		delete(h.objects, o)
		h.see(o, addressRequest{}, nil)
	case n < 27:
		h.setPools()
		h.allocations.SetPools(h.pools)
	case n < 30:
		h.takeOver()
	case n < 40:
		h.deliver()
	default:
		h.reconcile(h.owner(), h.mayFail)
	}
}

// owner picks one of few: pairs of them share addresses.
func (h *history) owner() alloc.Owner {
	return alloc.Owner{Kind: "Service", Namespace: "a", Name: fmt.Sprint(h.rand.IntN(6))}
}

// edit creates an object, or changes its request.
func (h *history) edit(o alloc.Owner) {
	number := int(o.Name[0] - '0')
	w := addressRequest{Request: alloc.Request{Owner: o, Families: []alloc.Family{alloc.IPv4}}, Created: time.Unix(int64(number), 0)}
	w.Ports = []alloc.Port{{Number: uint16(80 + number%2), Protocol: 6}}
	if number < 4 {
		w.Sharing.Key = fmt.Sprint(number / 2)
	}
	if h.rand.IntN(4) == 0 {
		w.Ports[0].Number = uint16(80 + h.rand.IntN(3))
	}
	if h.rand.IntN(4) == 0 {
		w.Sharing.Key = fmt.Sprint(h.rand.IntN(2))
	}
	if h.rand.IntN(2) == 0 {
		w.Families, w.Partial = append(w.Families, alloc.IPv6), h.rand.IntN(2) == 0
	}
	if h.rand.IntN(3) == 0 {
		w.Wanted = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", h.rand.IntN(4)))}
	}
	if h.rand.IntN(8) == 0 {
		w = w.reject("", errors.New("invalid"))
	}
	var shown []netip.Addr
	if all := h.objects[o]; len(all) > 0 {
		shown = all[len(all)-1].shown
	}
	h.put(o, w, shown)
}

func (h *history) put(o alloc.Owner, w addressRequest, shown []netip.Addr) {
	h.clock++
	w.Version = strconv.Itoa(h.clock)
	h.objects[o] = append(h.objects[o], version{h.clock, w, shown})
	h.see(o, w, shown)
}

// see judges a version as owners does.
func (h *history) see(o alloc.Owner, w addressRequest, shown []netip.Addr) {
	for address, there := range h.said {
		if !slices.Contains(shown, address) {
			delete(there, o)
		}
	}
	for _, address := range shown {
		there := h.said[address]
		if there == nil {
			there = map[alloc.Owner][]addressRequest{}
			h.said[address] = there
		}
		if there[o] == nil {
			for other, said := range there {
				if !slices.ContainsFunc(said, func(s addressRequest) bool { return shares(w, s) }) {
					h.Fatalf("%s is given to %s, %+v, and to %s, %+v", address, o, w, other, said)
				}
			}
		}
		there[o] = append(there[o], w)
	}
}

// shares reports whether two can be on one address.
func shares(a, b addressRequest) bool {
	return a.Sharing.Key != "" && a.Sharing == b.Sharing && a.Ports[0] != b.Ports[0]
}

func (h *history) newest(o alloc.Owner) (v version, exists bool) {
	all := h.objects[o]
	if len(all) == 0 {
		return version{}, false
	}
	return all[len(all)-1], true
}

func (h *history) setPools() {
	h.pools = nil
	for i, texts := range [][]string{{"192.0.2.0/31", "2001:db8::/127"}, {"192.0.2.1-192.0.2.3"}, {"2001:db8::1-2001:db8::2"}} {
		if h.rand.IntN(4) == 0 {
			continue
		}
		p := addressPool{Namespaces: labels.Everything(), Objects: labels.Everything()}
		p.Name, p.Automatic = fmt.Sprint(i), true
		for _, text := range texts {
			r, err := alloc.ParseRange(text)
			if err != nil {
				h.Fatal(err)
			}
			p.Ranges = append(p.Ranges, r)
		}
		h.pools = append(h.pools, p)
	}
}

// takeOver makes another process the leader: it writes new versions of objects whose status has
// room for an address, and adopts the others.
func (h *history) takeOver() {
	h.read = map[alloc.Owner]int{}
	h.allocations = newAllocations(func(alloc.Owner) {})
	h.allocations.SetPools(h.pools)
	var held []adopted
	for o := range h.objects {
		v, _ := h.newest(o)
		if mayGrow(v.request, v.shown) {
			h.put(o, v.request, v.shown)
		}
		held = append(held, adopted{addressRequest: v.request, Addresses: v.shown})
	}
	h.allocations.Adopt(held)
}

// deliver lets one late write arrive.
func (h *history) deliver() {
	if len(h.late) > 0 {
		i := h.rand.IntN(len(h.late))
		h.apply(h.late[i])
		h.late = slices.Delete(h.late, i, i+1)
	}
}

// apply reports whether a write made a new version.
func (h *history) apply(w write) bool {
	v, exists := h.newest(w.owner)
	if !exists || v.number != w.base {
		return false
	}
	h.put(w.owner, v.request, w.shown)
	return true
}

// mayFail sends a write, and reports whether its success is known.
func (h *history) mayFail(w write) bool {
	switch h.rand.IntN(5) {
	case 0:
		return false // never arrives
	case 1:
		h.late = append(h.late, w)
		return false
	case 2:
		h.apply(w)
		return false // the answer is lost
	default:
		return h.apply(w)
	}
}

// reconcile does as the controller: on a version that may be old.
func (h *history) reconcile(o alloc.Owner, send func(write) bool) {
	all := h.objects[o]
	if len(all) == 0 {
		h.allocations.Release(o)
		return
	}
	known := slices.IndexFunc(all, func(v version) bool { return v.number >= h.read[o] })
	v := all[known+h.rand.IntN(len(all)-known)]
	h.read[o] = v.number
	if h.allocations.Outdated(v.request) {
		return
	}
	g := h.allocations.Request(v.request)
	away := slices.Clone(g.Releasing)
	keeps := []netip.Addr{}
	for _, a := range v.shown {
		if slices.Contains(g.Addresses, a) && !slices.Contains(away, a) {
			keeps = append(keeps, a)
		} else {
			away = append(away, a)
		}
	}
	switch {
	case len(away) > 0:
		if send(write{o, v.number, keeps}) {
			h.allocations.StatusWritten(o, keeps)
		}
	case g.waits(v.shown):
		// later
	case !slices.Equal(v.shown, g.Addresses):
		send(write{o, v.number, g.Addresses})
	}
}

// settle runs without faults until nothing changes, and looks for owners that could have an address
// and don't.
func (h *history) settle() {
	for range 20 {
		for i := range 6 {
			o := alloc.Owner{Kind: "Service", Namespace: "a", Name: fmt.Sprint(i)}
			h.read[o] = h.clock // the newest
			if v, exists := h.newest(o); exists {
				h.read[o] = v.number
			}
			h.reconcile(o, h.apply)
		}
	}
	for o := range h.objects {
		v, _ := h.newest(o)
		if g := h.allocations.Get(o); !slices.Equal(v.shown, g.Addresses) || len(g.Releasing) > 0 {
			h.Errorf("%s shows %v and has %+v", o, v.shown, g)
		}
		if len(v.shown) == 0 && len(v.request.Families) == 1 && v.request.Wanted == nil && h.free() {
			h.Errorf("%s has no address", o)
		}
	}
}

// free reports whether there is an IPv4 address that no status shows.
func (h *history) free() bool {
	for i := range 4 {
		a := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i))
		in := slices.ContainsFunc(h.pools, func(p addressPool) bool {
			return slices.ContainsFunc(p.Ranges, func(r netipx.IPRange) bool { return r.Contains(a) })
		})
		used := false
		for o := range h.objects {
			v, _ := h.newest(o)
			used = used || slices.Contains(v.shown, a)
		}
		if in && !used {
			return true
		}
	}
	return false
}
