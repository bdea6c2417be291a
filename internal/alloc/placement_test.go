// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/test/fuzzrand"
)

// Nodes, groups and services come, change and go: what is decided keeps the promises.
func TestHistoriesOfPlacement(t *testing.T) {
	repeat(t, func(random *rand.Rand) error { return (&world{random: random}).run(60) })
}

func FuzzPlacement(f *testing.F) {
	for seed := range byte(8) {
		data := make([]byte, 60*int(seed))
		if _, err := rand.NewChaCha8([32]byte{seed}).Read(data); err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &world{random: fuzzrand.New(data)}
		if err := w.run(5 + min(len(data)/16, 60)); err != nil {
			t.Fatal(err)
		}
	})
}

// world is what the controller sees, and what it wrote last.
type world struct {
	random *rand.Rand
	nodes  []alloc.Node
	groups []alloc.Group
	units  []alloc.Unit
	// created counts groups, for their names.
	created int
}

// run makes steps, and decides after each.
func (w *world) run(steps int) error {
	for step := range steps {
		for range 1 + w.random.IntN(3) {
			w.change()
		}
		if err := cmp.Or(w.decideMembers(), w.decideServe()); err != nil {
			return fmt.Errorf("step %d: %w\nnodes %v\ngroups %v\nunits %v", step, err, w.nodes, w.groups, w.units)
		}
	}
	return nil
}

// change makes one random change to nodes, groups or units.
func (w *world) change() {
	switch name := fmt.Sprint("x", w.random.IntN(12)); w.random.IntN(10) {
	case 0:
		w.nodes = slices.DeleteFunc(w.nodes, func(n alloc.Node) bool { return n.Name == name })
	case 1, 2, 3:
		w.nodes = slices.DeleteFunc(w.nodes, func(n alloc.Node) bool { return n.Name == name })
		w.nodes = append(w.nodes, alloc.Node{Name: name, Ready: w.random.IntN(3) > 0})
	case 4:
		w.created++
		w.groups = append(w.groups, alloc.Group{Name: fmt.Sprint("g", w.created), Size: w.random.IntN(5), Eligible: w.eligible()})
	case 5:
		if n := len(w.groups); n > 3 {
			at := w.random.IntN(n)
			w.groups = slices.Delete(w.groups, at, at+1)
		}
	case 6:
		for i := range w.groups {
			if w.random.IntN(4) == 0 {
				w.groups[i].Size, w.groups[i].Eligible = w.random.IntN(5), w.eligible()
			}
		}
	case 7, 8:
		w.units = slices.DeleteFunc(w.units, func(u alloc.Unit) bool { return u.Key == name })
		w.units = append(w.units, alloc.Unit{Key: name, Addresses: 1 + w.random.IntN(3), Groups: w.matching()})
	case 9:
		for i := range w.units {
			if w.random.IntN(4) == 0 {
				w.units[i].Groups = w.matching()
			}
		}
	}
}

// eligible are most nodes, also some that don't exist.
func (w *world) eligible() (names []string) {
	few := w.random.IntN(3) == 0
	for _, n := range w.random.Perm(12) {
		if w.random.IntN(4) > 0 != few {
			names = append(names, fmt.Sprint("x", n))
		}
	}
	return names
}

// matching are most groups.
func (w *world) matching() (names []string) {
	for _, g := range w.groups {
		if w.random.IntN(3) > 0 {
			names = append(names, g.Name)
		}
	}
	return names
}

func (w *world) decideMembers() error {
	if w.random.IntN(16) == 0 && len(w.groups) > 1 { // a status was edited
		w.groups[0].Members = append(w.groups[0].Members, w.groups[1].Members...)
	}
	members := alloc.PlaceNodes(w.groups, w.nodes)
	if err := checkMembers(w.groups, w.nodes, members); err != nil {
		return fmt.Errorf("members %v: %w", members, err)
	}
	nodes := slices.Clone(w.nodes)
	w.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	if again := alloc.PlaceNodes(w.groups, nodes); !maps.EqualFunc(again, members, slices.Equal) {
		return fmt.Errorf("members %v, and in another order of nodes %v", members, again)
	}
	for i := range w.groups {
		w.groups[i].Members = members[w.groups[i].Name]
	}
	if again := alloc.PlaceNodes(w.groups, w.nodes); !maps.EqualFunc(again, members, slices.Equal) {
		return fmt.Errorf("members %v, and asked again %v", members, again)
	}
	return nil
}

func (w *world) decideServe() error {
	capacities := w.capacities()
	served := alloc.PlaceUnits(w.units, capacities)
	if err := checkServe(w.units, capacities, served); err != nil {
		return fmt.Errorf("served %v: %w", served, err)
	}
	units := slices.Clone(w.units)
	w.random.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
	if again := alloc.PlaceUnits(units, capacities); !maps.Equal(again, served) {
		return fmt.Errorf("served %v, and in another order of units %v", served, again)
	}
	for i := range w.units {
		w.units[i].Group = served[w.units[i].Key]
	}
	if again := alloc.PlaceUnits(w.units, capacities); !maps.Equal(again, served) {
		return fmt.Errorf("served %v, and asked again %v", served, again)
	}
	return nil
}

// capacities are those of the groups' members.
func (w *world) capacities() (capacities []alloc.Capacity) {
	ready := readiness(w.nodes)
	for _, g := range w.groups {
		c := alloc.Capacity{Group: g.Name, Nodes: len(g.Members)}
		for _, name := range g.Members {
			if ready[name] {
				c.Ready++
			}
		}
		capacities = append(capacities, c)
	}
	return capacities
}

// readiness returns whether each existing node is Ready.
func readiness(nodes []alloc.Node) map[string]bool {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Name] = n.Ready
	}
	return ready
}
