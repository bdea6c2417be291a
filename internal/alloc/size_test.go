// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/alloc"
)

// The sizes of groups of 2 to 8 nodes that may carry 100 packets per second and 10 addresses each.
func TestSizeGroup(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	type history = alloc.SizeHistory
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	long := ago(time.Hour)
	steady := func(size int) history { return history{Size: size, Changed: long, Needed: now} }
	low := func(size int, since time.Duration) history {
		return history{Size: size, Changed: long, Needed: ago(since)}
	}
	for _, c := range []struct {
		name               string
		size, nodes        int
		packets, addresses float64
		partial            bool
		before             history
		want               int
		// needed says that fewer nodes aren't enough at this time.
		needed bool
	}{
		{"no load", 2, 2, 0, 0, false, low(2, time.Hour), 2, false},
		{"all that the nodes may carry", 3, 3, 300, 0, false, steady(3), 3, true},
		{"a little more", 3, 3, 301, 0, false, steady(3), 4, true},
		{"much more, at once", 3, 3, 650, 0, false, steady(3), 7, true},
		{"more than the maximum carries", 3, 3, 5000, 0, false, steady(3), 8, true},
		{"infinitely more", 3, 3, math.Inf(1), 0, false, steady(3), 8, true},
		{"at the maximum", 8, 8, 5000, 0, false, low(8, time.Hour), 8, true},
		{"addresses", 3, 3, 0, 41, false, steady(3), 5, true},
		{"the demand that needs most", 3, 3, 450, 61, false, steady(3), 7, true},
		{"without history", 3, 3, 350, 0, false, history{}, 4, true},
		{"without history and a size", 0, 0, 0, 0, false, history{}, 2, true},
		{"known to be more, though not how much", 3, 3, 350, 0, true, steady(3), 4, true},
		{"more, but nodes have just joined", 4, 4, 500, 0, false, history{4, ago(time.Minute), ago(time.Minute)}, 4, true},
		{"more, and flows have moved", 4, 4, 500, 0, false, history{4, ago(alloc.SizePause), ago(time.Minute)}, 5, true},
		{"more, but not enough spare nodes", 5, 4, 700, 0, false, steady(5), 5, true},
		{"less, but not for long", 4, 4, 100, 0, false, low(4, 9*time.Minute), 4, false},
		{"less for long: one node", 4, 4, 100, 0, false, low(4, 10*time.Minute), 3, true},
		{"less, at the minimum", 2, 2, 0, 0, false, low(2, time.Hour), 2, false},
		{"less for long, with little reserve", 4, 4, 271, 0, false, low(4, 10*time.Minute), 4, true},
		{"less for long, with enough reserve", 4, 4, 270, 0, false, low(4, 10*time.Minute), 3, true},
		{"less packets, not addresses", 4, 4, 0, 40, false, low(4, 10*time.Minute), 4, true},
		{"not known to be less", 4, 4, 0, 0, true, low(4, time.Hour), 4, true},
		{"not known without history", 4, 4, 0, 0, false, history{}, 4, true},
		{"less than empty places need", 8, 4, 350, 0, false, low(8, 10*time.Minute), 4, true},
		{"less than some empty places need", 8, 4, 500, 0, false, low(8, 10*time.Minute), 6, true},
		{"no less than the minimum, without nodes", 4, 1, 0, 0, false, low(4, 10*time.Minute), 2, true},
		{"a higher minimum", 1, 1, 0, 0, false, low(1, time.Hour), 2, true},
		{"a lower maximum", 9, 9, 0, 0, false, low(9, time.Hour), 8, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := alloc.SizeRequest{Size: c.size, Nodes: c.nodes, Min: 2, Max: 8, Complete: !c.partial, DownAfter: 10 * time.Minute, Demands: []alloc.Demand{
				{Unit: "addresses", Load: c.addresses, PerNode: 10}, {Unit: "packets per second", Load: c.packets, PerNode: 100},
			}}
			got := alloc.SizeGroup(r, c.before, now)
			if got.Size != c.want || got.Needed.Equal(now) != c.needed {
				t.Errorf("%+v after %+v: got %+v, want size %d", r, c.before, got, c.want)
			}
			within := min(max(c.size, 2), 8)
			if changed := got.Changed.Equal(now); changed != (got.Size != within) || !changed && got.Changed != c.before.Changed {
				t.Errorf("size %d after %d, changed %s", got.Size, within, got.Changed)
			}
		})
	}
}

func TestSizeGroupInvariants(t *testing.T) {
	repeat(t, loadSteps, func(random *rand.Rand) error { return cmp.Or(randomLoads(random), steadyLoads(random)) })
}

// loadSteps is the number of decisions about random loads.
const loadSteps = 2000

// randomLoads has random loads, lost reports and edits of bounds: a size is always within bounds,
// grows only if the load needs it, and shrinks only if for DownAfter less was known to be enough.
func randomLoads(random *rand.Rand) error {
	r := alloc.SizeRequest{Size: 3, Min: 3, Max: 6, DownAfter: 10 * time.Minute}
	now := time.Unix(1_000_000, 0)
	var h alloc.SizeHistory
	var changed, needed, bounded time.Time
	level := 3.0
	for step := range loadSteps {
		if now = now.Add(time.Duration(random.IntN(60)) * time.Second); random.IntN(300) == 0 {
			h, changed = alloc.SizeHistory{}, time.Time{} // another leader
			needed = now
		}
		if random.IntN(200) == 0 {
			r.Min = 1 + random.IntN(4)
			r.Max = r.Min + 1 + random.IntN(5)
		}
		if random.IntN(30) == 0 {
			level = random.Float64() * 8
		}
		noise := 1 + (random.Float64()-0.5)/10
		load := level * noise
		r.Demands = []alloc.Demand{{Load: load, PerNode: 1}}
		r.Complete, r.Nodes = random.IntN(200) > 0, r.Size-random.IntN(2)*random.IntN(2)
		size := min(max(r.Size, r.Min), r.Max)
		if size != r.Size {
			bounded = now
		}
		if !r.Complete || load > 0.9*float64(size-1) {
			needed = now
		}
		h = alloc.SizeGroup(r, h, now)
		err := func(text string) error {
			return fmt.Errorf("step %d, %s: %+v: size %d: %s", step, now, r, h.Size, text)
		}
		switch {
		case h.Size < r.Min || h.Size > r.Max:
			return err("out of bounds")
		case h.Size > size && (load <= float64(size) || float64(h.Size) != min(math.Ceil(load), float64(r.Max))):
			return err("grows")
		case h.Size > size && now.Sub(changed) < alloc.SizePause:
			return err("grows soon after a change")
		case h.Size < size && (now.Sub(needed) < r.DownAfter || now.Sub(changed) < r.DownAfter || now.Sub(bounded) < r.DownAfter):
			return err("shrinks too soon")
		case h.Size < min(size-1, r.Nodes):
			return err("shrinks by more than one")
		case h.Size == size && size < r.Max && load > float64(size) && r.Nodes >= size && now.Sub(changed) >= alloc.SizePause:
			return err("doesn't grow")
		}
		if h.Size != size {
			changed, needed = now, now
		}
		r.Size = h.Size
	}
	return nil
}

// balancers simulates the nodes of a group, of which each reports once a minute, at a time of its
// own, the average load of its last minute. Routers spread the load evenly over the nodes of the
// group a few seconds after it changes.
type balancers struct {
	phases   []int
	carried  [][60]float64 // in the last seconds, by node
	reported []float64
	members  []int // the number of nodes that routers know, in the last seconds
}

const routersFollow = 5 // seconds

func newBalancers(random *rand.Rand, nodes, members int) *balancers {
	b := &balancers{carried: make([][60]float64, nodes), reported: make([]float64, nodes)}
	for range nodes {
		b.phases = append(b.phases, random.IntN(60))
	}
	for range routersFollow {
		b.members = append(b.members, members)
	}
	return b
}

// pass has a second pass in which the first nodes are the group's, and returns the load that these
// have reported last.
func (b *balancers) pass(second, members int, load float64) (known float64) {
	b.members = append(b.members[1:], members)
	for n := range b.carried {
		b.carried[n][second%60] = 0
		if n < b.members[0] {
			b.carried[n][second%60] = load / float64(b.members[0])
		}
		if second%60 == b.phases[n] {
			b.reported[n] = 0
			for _, c := range b.carried[n] {
				b.reported[n] += c / 60
			}
		}
		if n < members {
			known += b.reported[n]
		}
	}
	return known
}

// steadyLoads has a load that rises and falls, and stays in between: the size follows it, to no more
// nodes than the load ever needs, although reports are late and may have a flow on two nodes, and
// doesn't change while the load stays.
func steadyLoads(random *rand.Rand) error {
	const least, most = 2, 12
	b := newBalancers(random, most, least)
	r := alloc.SizeRequest{Size: least, Min: least, Max: most, Complete: true, DownAfter: 10 * time.Minute}
	var h alloc.SizeHistory
	second := 0
	follow := func(load, noise float64, lasts time.Duration) (changes int) {
		for end := second + int(lasts.Seconds()); second < end; second++ {
			known := b.pass(second, r.Size, load*(1-noise*random.Float64()))
			r.Nodes, r.Demands = r.Size, []alloc.Demand{{Load: known, PerNode: 1}}
			h = alloc.SizeGroup(r, h, time.Unix(int64(second), 0))
			if h.Size != r.Size {
				r.Size = h.Size
				changes++
			}
		}
		return changes
	}
	before := float64(least)
	for range 4 {
		load := 0.5 + random.Float64()*(most-1)
		changes := follow(load, 0.02, 15*time.Minute)
		enough, shrunk := int(math.Ceil(load)), max(int(math.Ceil(load/0.9)), least)
		if r.Size < int(math.Ceil(load*0.98)) || load > before && r.Size > max(enough, int(math.Ceil(before/0.9)), least) || load > before && changes > 3 {
			return fmt.Errorf("size %d after %d changes, for %f after %f", r.Size, changes, load, before)
		}
		follow(load, 0, 2*time.Hour)
		if r.Size > shrunk {
			return fmt.Errorf("size %d, %d are enough for %f", r.Size, shrunk, load)
		}
		if changes := follow(load, 0, time.Hour); changes > 0 {
			return fmt.Errorf("%d changes to size %d for an unchanged load of %f", changes, r.Size, load)
		}
		before = load
	}
	return nil
}
