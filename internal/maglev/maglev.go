// SPDX-License-Identifier: Apache-2.0

// Package maglev builds the consistent-hashing ring of a service: the table
// that turns a flow's hash into one of the service's backends.
//
// It follows section 3.4 of "Maglev: A Fast and Reliable Software Network Load
// Balancer" (NSDI 2016), with weights and with a ring size that fits the
// service. The data planes call it when a service's backends change; they look
// entries up by themselves. The package is pure and deterministic: nodes that
// are given the same seed and the same set of backends build the same ring,
// whatever came before and in whatever order the backends are listed. So a
// router may move a flow from one balancer to another, and the flow still
// reaches its backend.
package maglev

import (
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// MaxBackends is the largest number of backends of one ring: an entry is an
// index of 15 bits.
const MaxBackends = 1<<15 - 1

// Backend is one candidate for the entries of a ring.
type Backend struct {
	// ID is hashed to the order in which the backend claims entries. The IDs
	// of one ring are distinct, and their addresses never IPv4-mapped.
	ID netip.AddrPort
	// Weight is the backend's share relative to the others', 0 to lb.MaxWeight.
	// A backend of weight 0 gets no entries.
	Weight int
	// Share is the part of the weight that counts for now, in sixteenths: 1 to 15,
	// or 0 for the whole. It moves entries and leaves the ring's size as it is.
	Share int
}

// sixteenths is the weight that counts, in sixteenths: only ratios of weights
// have a meaning.
func (b Backend) sixteenths() int {
	if b.Share == 0 {
		return lb.WholeShare * b.Weight
	}
	return b.Share * b.Weight
}

// Build returns the ring: size entries, each an index into backends. size is a
// prime (the walks of section 3.4 must reach every entry), normally from Size. The
// ring is empty if no backend has a weight.
//
// Every backend with a weight gets at least one entry. Of the others, with n
// such backends and the total weight W, one of weight w gets
// size·w/W entries to within 2 + n·w/W; of equal weights no two counts differ
// by more than 1.
func Build(seed uint64, size int, backends []Backend) ([]uint16, error) {
	weighted, err := check(backends)
	if err != nil || weighted == 0 {
		return nil, err
	}
	if size < weighted || !prime(size) {
		return nil, fmt.Errorf("ring of %d entries: want a prime, at least the %d backends with a weight", size, weighted)
	}
	return populate(size, newWalkers(seed, size, backends)), nil
}

// check returns the number of backends with a weight.
func check(backends []Backend) (weighted int, err error) {
	if len(backends) > MaxBackends {
		return 0, fmt.Errorf("%d backends: more than the %d of a ring", len(backends), MaxBackends)
	}
	for _, b := range backends {
		if b.Weight < 0 || b.Weight > lb.MaxWeight {
			return 0, fmt.Errorf("backend %s: weight %d is not between 0 and %d", b.ID, b.Weight, lb.MaxWeight)
		}
		if b.Share < 0 || b.Share >= lb.WholeShare {
			return 0, fmt.Errorf("backend %s: a share of %d sixteenths is not between 0 and 15", b.ID, b.Share)
		}
		if b.Weight > 0 {
			weighted++
		}
	}
	return weighted, nil
}

// class is a run of walkers of equal weight; they take their turns together.
type class struct {
	walkers []walker
	weight  int
	// credit grows by weight each round; when it reaches the largest weight of
	// all, the class takes a turn and pays that much.
	credit int
}

// populate lets the walkers claim the entries of a ring turn by turn, as in the
// paper's pseudocode 1. In a round each class of the largest weight takes one
// turn, one of half that weight takes one every other round, and so on. All
// take a turn in the first round, so that even the smallest weight gets an
// entry.
func populate(size int, walkers []walker) []uint16 {
	ring := make([]uint16, size)
	classes := newClasses(walkers)
	heaviest := classes[0].weight
	free := newFreeSet(size)
	for left := size; ; {
		for i := range classes {
			c := &classes[i]
			c.credit += c.weight
			if c.credit < heaviest {
				continue
			}
			c.credit -= heaviest
			turns := c.walkers[:min(len(c.walkers), left)]
			for j := range turns {
				ring[turns[j].claim(free, size)] = turns[j].index
			}
			if left -= len(turns); left == 0 {
				return ring
			}
		}
	}
}

// newClasses cuts walkers, ordered by falling weight, into runs of equal weight.
func newClasses(walkers []walker) []class {
	var all []class
	heaviest := walkers[0].weight
	for start, end := 0, 0; start < len(walkers); start = end {
		weight := walkers[start].weight
		for end = start; end < len(walkers) && walkers[end].weight == weight; {
			end++
		}
		all = append(all, class{walkers: walkers[start:end], weight: weight, credit: heaviest - weight})
	}
	return all
}
