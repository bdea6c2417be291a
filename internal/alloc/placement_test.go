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

// Nodes, groups and services come, change and go: each decision keeps the invariants.
func TestPlacementInvariants(t *testing.T) {
	const steps = 60
	repeat(t, steps, func(random *rand.Rand) error { return (&placement{random: random}).run(steps) })
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
		p := &placement{random: fuzzrand.New(data)}
		if err := p.run(5 + min(len(data)/16, 60)); err != nil {
			t.Fatal(err)
		}
	})
}

// placement is the input of the controller, and its last decisions.
type placement struct {
	random *rand.Rand
	nodes  []alloc.Node
	groups []alloc.Group
	units  []alloc.Unit
	// created counts groups, for their names.
	created int
}

// run makes steps, and decides after each.
func (p *placement) run(steps int) error {
	for step := range steps {
		for range 1 + p.random.IntN(3) {
			p.change()
		}
		if err := cmp.Or(p.decideMembers(), p.decideServe()); err != nil {
			return fmt.Errorf("step %d: %w\nnodes %v\ngroups %v\nunits %v", step, err, p.nodes, p.groups, p.units)
		}
	}
	return nil
}

// change makes one random change to nodes, groups or units.
func (p *placement) change() {
	switch name := fmt.Sprint("x", p.random.IntN(12)); p.random.IntN(10) {
	case 0:
		p.nodes = slices.DeleteFunc(p.nodes, func(n alloc.Node) bool { return n.Name == name })
	case 1, 2, 3:
		p.nodes = slices.DeleteFunc(p.nodes, func(n alloc.Node) bool { return n.Name == name })
		p.nodes = append(p.nodes, alloc.Node{Name: name, Ready: p.random.IntN(3) > 0})
	case 4:
		p.created++
		p.groups = append(p.groups, alloc.Group{Name: fmt.Sprint("g", p.created), Size: p.random.IntN(5), Eligible: p.eligible()})
	case 5:
		if n := len(p.groups); n > 3 {
			at := p.random.IntN(n)
			p.groups = slices.Delete(p.groups, at, at+1)
		}
	case 6:
		for i := range p.groups {
			if p.random.IntN(4) == 0 {
				p.groups[i].Size, p.groups[i].Eligible = p.random.IntN(5), p.eligible()
			}
		}
	case 7, 8:
		p.units = slices.DeleteFunc(p.units, func(u alloc.Unit) bool { return u.Key == name })
		p.units = append(p.units, alloc.Unit{Key: name, Addresses: 1 + p.random.IntN(3), Groups: p.matching()})
	case 9:
		for i := range p.units {
			if p.random.IntN(4) == 0 {
				p.units[i].Groups = p.matching()
			}
		}
	}
}

// eligible are most nodes, also some that don't exist.
func (p *placement) eligible() (names []string) {
	few := p.random.IntN(3) == 0
	for _, n := range p.random.Perm(12) {
		if p.random.IntN(4) > 0 != few {
			names = append(names, fmt.Sprint("x", n))
		}
	}
	return names
}

// matching are most groups.
func (p *placement) matching() (names []string) {
	for _, g := range p.groups {
		if p.random.IntN(3) > 0 {
			names = append(names, g.Name)
		}
	}
	return names
}

func (p *placement) decideMembers() error {
	if p.random.IntN(16) == 0 && len(p.groups) > 1 { // a status was edited
		p.groups[0].Members = append(p.groups[0].Members, p.groups[1].Members...)
	}
	members := alloc.PlaceNodes(p.groups, p.nodes)
	if err := checkMembers(p.groups, p.nodes, members); err != nil {
		return fmt.Errorf("members %v: %w", members, err)
	}
	nodes := slices.Clone(p.nodes)
	p.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	if again := alloc.PlaceNodes(p.groups, nodes); !maps.EqualFunc(again, members, slices.Equal) {
		return fmt.Errorf("members %v, and in another order of nodes %v", members, again)
	}
	for i := range p.groups {
		p.groups[i].Members = members[p.groups[i].Name]
	}
	if again := alloc.PlaceNodes(p.groups, p.nodes); !maps.EqualFunc(again, members, slices.Equal) {
		return fmt.Errorf("members %v, and asked again %v", members, again)
	}
	return nil
}

func (p *placement) decideServe() error {
	capacities := p.capacities()
	served := alloc.PlaceUnits(p.units, capacities)
	if err := checkServe(p.units, capacities, served); err != nil {
		return fmt.Errorf("served %v: %w", served, err)
	}
	units := slices.Clone(p.units)
	p.random.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
	if again := alloc.PlaceUnits(units, capacities); !maps.Equal(again, served) {
		return fmt.Errorf("served %v, and in another order of units %v", served, again)
	}
	for i := range p.units {
		p.units[i].Group = served[p.units[i].Key]
	}
	if again := alloc.PlaceUnits(p.units, capacities); !maps.Equal(again, served) {
		return fmt.Errorf("served %v, and asked again %v", served, again)
	}
	return nil
}

// capacities returns the capacities of the groups' members.
func (p *placement) capacities() (capacities []alloc.Capacity) {
	ready := readiness(p.nodes)
	for _, g := range p.groups {
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
