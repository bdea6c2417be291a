// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// kernel is what the table asks of the kernel.
type kernel interface {
	links() ([]link, error)
	addresses() ([]address, error)
	route(netip.Addr) route
	neighbour(neighbourKey) (neighbour, error)
	// probe makes the kernel resolve a neighbour and, where it can, keep it
	// resolved. exists says whether the table has seen an entry.
	probe(key neighbourKey, exists bool) error
	// release lets an entry become an ordinary one again.
	release(neighbourKey) error
}

// table holds the followed targets, what each depends on and what became of it.
// Events only mark what they concern; settle does the work, once for all events
// that came together. It isn't safe for concurrent use.
type table struct {
	kernel kernel
	log    *slog.Logger
	view   view

	entries    map[Target]*entry
	owners     map[lb.VIP]*owner
	neighbours map[neighbourKey]*watched
	index      index
	// stale are the entries to be decided again, suspects the neighbours that
	// may need a probe.
	stale    map[*entry]struct{}
	suspects map[*watched]struct{}
	// unsynced means that events may have been lost and nothing that is known
	// counts, oldAddresses that view.addresses has to be read again.
	unsynced, oldAddresses bool
}

// entry is a followed target.
type entry struct {
	target Target
	owners map[*owner]struct{}
	// rerouted means that the kernel has to be asked for the route again, failed
	// that it couldn't be asked for all that was needed.
	rerouted, failed bool
	route            route
	neighbours       []neighbourKey
	result           Result
}

// owner is a service that follows targets.
type owner struct {
	vip     lb.VIP
	entries map[*entry]struct{}
}

func newTable(log *slog.Logger, k kernel, interfaces []string) *table {
	t := &table{
		kernel:       k,
		log:          log,
		entries:      map[Target]*entry{},
		owners:       map[lb.VIP]*owner{},
		neighbours:   map[neighbourKey]*watched{},
		index:        newIndex(),
		stale:        map[*entry]struct{}{},
		suspects:     map[*watched]struct{}{},
		oldAddresses: true,
	}
	t.view = view{interfaces: interfaces, links: map[int]link{}, neighbour: t.neighbour}
	return t
}

func (t *table) neighbour(key neighbourKey) (neighbour, error) {
	if w, ok := t.neighbours[key]; ok {
		return w.neighbour, w.refused
	}
	return neighbour{}, nil
}

// follow makes targets those of vip and returns how each is reached.
func (t *table) follow(vip lb.VIP, targets []Target) []Result {
	o, ok := t.owners[vip]
	if !ok {
		o = &owner{vip: vip}
		t.owners[vip] = o
	}
	before := o.entries
	o.entries = make(map[*entry]struct{}, len(targets))
	results := make([]Result, len(targets))
	for i, target := range targets {
		results[i] = t.reach(o, target)
	}
	for e := range before {
		if _, still := o.entries[e]; !still {
			t.leave(o, e)
		}
	}
	return results
}

// reach makes a target one of the owner's. One with a relay stands for two: if the
// relay is directly connected, nothing is asked about the other.
func (t *table) reach(o *owner, target Target) Result {
	if !target.Relay.IsValid() {
		return t.own(o, target)
	}
	relay := t.own(o, Target{Address: target.Relay, OnLink: true, MAC: target.MAC})
	if errors.Is(relay.Err, errIndirect) {
		target.Relay = netip.Addr{}
		return t.own(o, target)
	}
	relay.Hop.Relay = relay.Err == nil
	return relay
}

// own makes the owner follow what has no relay.
func (t *table) own(o *owner, target Target) Result {
	e := t.entry(target)
	e.owners[o] = struct{}{}
	o.entries[e] = struct{}{}
	return e.result
}

func (t *table) forget(vip lb.VIP) {
	if o, ok := t.owners[vip]; ok {
		for e := range o.entries {
			t.leave(o, e)
		}
		delete(t.owners, vip)
	}
}

// entry returns the entry of target; a new one is decided at once.
func (t *table) entry(target Target) *entry {
	if e, ok := t.entries[target]; ok {
		return e
	}
	e := &entry{target: target, owners: map[*owner]struct{}{}, rerouted: true}
	t.entries[target] = e
	t.index.add(e)
	t.decide(e)
	return e
}

// leave drops an entry when its last owner leaves it.
func (t *table) leave(o *owner, e *entry) {
	delete(e.owners, o)
	if len(e.owners) > 0 {
		return
	}
	delete(t.entries, e.target)
	delete(t.stale, e)
	t.index.remove(e)
	for _, key := range e.neighbours {
		t.unwatch(key, e)
	}
}

// decide finds out how an entry is reached now, and reports whether that has
// changed.
func (t *table) decide(e *entry) bool {
	if e.rerouted {
		t.index.unroute(e)
		e.route = t.kernel.route(e.target.Address)
		t.index.route(e)
		e.rerouted = false
	}
	t.depend(e, t.view.neighbours(e.target, &e.route))
	before := e.result
	err := e.route.err
	if err == nil && !e.target.OnLink {
		err = t.readAddresses()
	}
	e.failed = err != nil
	e.result = Result{Err: err}
	if err == nil {
		e.result.Hop, e.result.Err = t.view.decide(e.target, &e.route)
	}
	return !e.result.equal(before)
}

func (t *table) readAddresses() error {
	if !t.oldAddresses {
		return nil
	}
	all, err := t.kernel.addresses()
	if err != nil {
		return fmt.Errorf("addresses of this machine: %w", err)
	}
	t.view.addresses, t.oldAddresses = all, false
	return nil
}

// ports returns those of a bridge.
func (t *table) ports(bridge int) []Port {
	var ports []Port
	for index := range t.index.ports[bridge] {
		ports = append(ports, Port{index, t.view.links[index].mac})
	}
	return ports
}

// settle decides again what events have marked since the last call, and returns
// the services of which a target is reached differently now, in order.
func (t *table) settle() ([]lb.VIP, error) {
	if t.unsynced {
		if err := t.sync(); err != nil {
			return nil, err
		}
	}
	for w := range t.suspects {
		t.probe(w)
	}
	clear(t.suspects)
	concerned := map[lb.VIP]struct{}{}
	for e := range t.stale {
		if t.decide(e) {
			for o := range e.owners {
				concerned[o.vip] = struct{}{}
			}
		}
	}
	clear(t.stale)
	vips := make([]lb.VIP, 0, len(concerned))
	for vip := range concerned {
		vips = append(vips, vip)
	}
	slices.SortFunc(vips, lb.VIP.Compare)
	return vips, nil
}

// sync reads again what events keep up to date otherwise.
func (t *table) sync() error {
	links, err := t.kernel.links()
	if err != nil {
		return fmt.Errorf("network devices: %w", err)
	}
	clear(t.view.links)
	clear(t.index.ports)
	for _, l := range links {
		t.view.links[l.index] = l
		t.index.join(l)
	}
	t.oldAddresses = true
	for _, w := range t.neighbours {
		t.read(w)
		t.suspects[w] = struct{}{}
	}
	t.rerouteAll()
	t.unsynced = false
	return nil
}

// tick does what is due without an event: neighbours that the kernel doesn't
// keep resolved are probed, and failed look-ups are repeated.
func (t *table) tick() {
	for _, w := range t.neighbours {
		if !w.managed {
			t.suspects[w] = struct{}{}
		}
	}
	for _, e := range t.entries {
		if e.failed {
			t.reroute(e)
		}
	}
}
