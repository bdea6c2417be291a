// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// kernel is the part of the kernel's tables that the table reads.
type kernel interface {
	links() ([]link, error)
	addresses() ([]address, error)
	route(netip.Addr) route
	neighbour(neighbourKey) (neighbour, error)
	// probe makes the kernel resolve a neighbour and, where it can, keep it
	// resolved. exists is whether the table has seen an entry.
	probe(key neighbourKey, exists bool) error
	// release lets an entry become an ordinary one again.
	release(neighbourKey) error
}

// table holds the followed targets, the dependencies of each and its result. Events
// only mark entries; decideMarked does the work, once for all events that came together.
// It isn't safe for concurrent use.
type table struct {
	kernel     kernel
	view       view
	neighbours *neighbours

	entries map[Target]*entry
	owners  map[lb.VIP]*owner
	index   index
	// stale are the entries to be decided again. The neighbours share the map: it is cleared, never replaced,
	// and so are the links of the view.
	stale map[*entry]struct{}
	// unsynced means that events may have been lost and nothing that is known
	// counts, oldAddresses that view.addresses has to be read again.
	unsynced, oldAddresses bool
	// relinked means that there was an event of an interface on which XDP runs.
	relinked bool
	// latest is the route that was looked up last, and found the latest result but for the MAC
	// address of the next hop: targets of one network share them.
	latest *route
	found  *Result
}

// owner is a service with the entries that it follows, in the order of its targets.
type owner struct {
	vip     lb.VIP
	entries []*entry
}

// entry is a followed target. It is small, as there is one for each address of a backend.
type entry struct {
	target     Target // without a relay
	owners     set[owner]
	route      *route // immutable
	neighbours []*watched
	// found is the result but for the MAC address of the next hop. It is immutable.
	found       *Result
	destination lb.MAC
	// rerouted means that the route has to be looked up again, failed that the
	// kernel couldn't be queried for all that was needed.
	rerouted, failed bool
}

// result is how the target is reached.
func (e *entry) result() Result {
	r := *e.found
	r.Hop.Destination = e.destination
	return r
}

func newTable(log *slog.Logger, k kernel, interfaces []string, filterPods bool) *table {
	stale, links := map[*entry]struct{}{}, map[int]link{}
	n := &neighbours{
		kernel: k, log: log, links: links, stale: stale,
		watched: map[neighbourKey]*watched{}, suspects: map[*watched]struct{}{},
	}
	return &table{
		kernel:       k,
		view:         view{interfaces: interfaces, filterPods: filterPods, links: links, neighbour: n.state},
		neighbours:   n,
		entries:      map[Target]*entry{},
		owners:       map[lb.VIP]*owner{},
		index:        index{byDevice: map[int]map[*entry]struct{}{}},
		stale:        stale,
		oldAddresses: true,
		found:        &Result{},
	}
}

// follow replaces the targets of vip and returns how each is reached.
func (t *table) follow(vip lb.VIP, targets []Target) []Result {
	o := t.owners[vip]
	if o == nil {
		o = &owner{vip: vip}
		t.owners[vip] = o
	}
	before := o.entries
	o.entries = make([]*entry, 0, len(targets))
	results := make([]Result, len(targets))
	for i, target := range targets {
		results[i] = t.reach(o, target)
	}
	if slices.Equal(before, o.entries) {
		return results
	}
	now := make(map[*entry]struct{}, len(o.entries))
	for _, e := range o.entries {
		now[e] = struct{}{}
	}
	for _, e := range before {
		if _, still := now[e]; !still {
			t.leave(o, e)
		}
	}
	return results
}

// reach makes a target one of the service's. One with a relay stands for two: if the
// relay is directly connected, the other is not looked up.
func (t *table) reach(o *owner, target Target) Result {
	if target.Relay == nil {
		return t.own(o, target)
	}
	relay := t.own(o, Target{Address: *target.Relay, OnLink: true, MAC: target.MAC})
	if errors.Is(relay.Err, errIndirect) {
		target.Relay = nil
		return t.own(o, target)
	}
	relay.Hop.Relay = relay.Err == nil
	return relay
}

// own makes the service follow a target without a relay.
func (t *table) own(o *owner, target Target) Result {
	e := t.entry(target)
	e.owners.add(o)
	o.entries = append(o.entries, e)
	return e.result()
}

func (t *table) forget(vip lb.VIP) {
	o := t.owners[vip]
	if o == nil {
		return
	}
	for _, e := range o.entries {
		t.leave(o, e)
	}
	delete(t.owners, vip)
}

// entry returns the entry of target; a new one is decided at once.
func (t *table) entry(target Target) *entry {
	if e, ok := t.entries[target]; ok {
		return e
	}
	e := &entry{target: target, found: t.found, rerouted: true}
	t.entries[target] = e
	t.index.add(e)
	t.decide(e)
	return e
}

// leave drops an entry when its last owner leaves it. An owner with several equal targets
// leaves it once.
func (t *table) leave(o *owner, e *entry) {
	if !e.owners.remove(o) || !e.owners.empty() {
		return
	}
	delete(t.entries, e.target)
	delete(t.stale, e)
	t.index.remove(e)
	t.neighbours.depend(e, nil)
}

// decide finds out how an entry is reached now, and reports whether that has
// changed.
func (t *table) decide(e *entry) bool {
	if e.rerouted {
		t.index.unroute(e)
		e.route = t.route(e.target.Address)
		t.index.route(e)
		e.rerouted = false
	}
	t.neighbours.depend(e, t.view.neighbours(e.target, e.route))
	err := e.route.err
	if err == nil && !e.target.OnLink {
		err = t.readAddresses()
	}
	e.failed = err != nil
	now := Result{Err: err}
	if err == nil {
		now.Hop, now.Err = t.view.decide(e.target, e.route)
	}
	same := now.equal(e.result())
	e.destination, now.Hop.Destination = now.Hop.Destination, lb.MAC{}
	e.found = &now
	if now.Err == nil {
		if *t.found != now {
			t.found = &now
		}
		e.found = t.found
	}
	return !same
}

// route looks up the route to an address.
func (t *table) route(address netip.Addr) *route {
	found := t.kernel.route(address)
	if t.latest == nil || !found.equal(t.latest) {
		t.latest = &found
	}
	return t.latest
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

// ports returns the ports of a bridge.
func (t *table) ports(bridge int) []Port {
	var ports []Port
	for _, l := range t.view.links {
		if l.master == bridge {
			ports = append(ports, Port{l.index, l.mac})
		}
	}
	return ports
}

// decideMarked decides again on entries that events have marked since the last call, and
// returns the services of which a target is reached differently now, in order.
func (t *table) decideMarked() ([]lb.VIP, error) {
	if t.unsynced {
		if err := t.sync(); err != nil {
			return nil, err
		}
	}
	t.neighbours.probeSuspects()
	concerned := map[lb.VIP]struct{}{}
	for e := range t.stale {
		if t.decide(e) {
			for o := range e.owners.all() {
				concerned[o.vip] = struct{}{}
			}
		}
	}
	clear(t.stale)
	return slices.SortedFunc(maps.Keys(concerned), lb.VIP.Compare), nil
}

// sync reads again the state that events keep up to date otherwise.
func (t *table) sync() error {
	links, err := t.kernel.links()
	if err != nil {
		return fmt.Errorf("network devices: %w", err)
	}
	clear(t.view.links)
	for _, l := range links {
		t.view.links[l.index] = l
	}
	t.oldAddresses = true
	t.neighbours.sync()
	t.rerouteAll()
	t.unsynced = false
	return nil
}

// tick does the periodic work: neighbours that the kernel doesn't
// keep resolved are probed, and failed look-ups are repeated.
func (t *table) tick() {
	t.neighbours.suspectUnmanaged()
	for _, e := range t.entries {
		if e.failed {
			t.reroute(e)
		}
	}
}

// index finds the entries that an event concerns without a look at all of them: a
// node of a container cluster has thousands, and hundreds of devices that come and
// go.
type index struct {
	// byAddress holds the entries in the order of their addresses, to find those
	// within a route's prefix; nil if the next event that needs them has to sort them.
	byAddress []*entry
	// edits counts the entries that have come and gone since byAddress was last needed.
	edits int
	// byDevice holds those whose route uses a device, by its index.
	byDevice map[int]map[*entry]struct{}
}

// maxEdits is about the number of edits that take as long as sorting: each moves half of
// the entries.
const maxEdits = 512

// edit reports whether an entry that comes or goes does so in byAddress.
func (x *index) edit() bool {
	if x.edits++; x.edits > maxEdits {
		x.byAddress = nil
	}
	return x.byAddress != nil
}

// sort puts all entries in order, if they aren't yet.
func (x *index) sort(all map[Target]*entry) []*entry {
	x.edits = 0
	if x.byAddress == nil {
		x.byAddress = make([]*entry, 0, len(all))
		for _, e := range all {
			x.byAddress = append(x.byAddress, e)
		}
		slices.SortFunc(x.byAddress, func(a, b *entry) int {
			return a.target.Address.Compare(b.target.Address)
		})
	}
	return x.byAddress
}

// from returns where the entries of an address, and of those behind it, begin.
func (x *index) from(address netip.Addr) int {
	i, _ := slices.BinarySearchFunc(x.byAddress, address, func(e *entry, a netip.Addr) int {
		return e.target.Address.Compare(a)
	})
	return i
}

// add takes in a new entry, which has no route yet.
func (x *index) add(e *entry) {
	if x.edit() {
		x.byAddress = slices.Insert(x.byAddress, x.from(e.target.Address), e)
	}
}

// remove forgets an entry.
func (x *index) remove(e *entry) {
	x.unroute(e)
	if !x.edit() {
		return
	}
	first := x.from(e.target.Address)
	if i := slices.Index(x.byAddress[first:], e); i >= 0 {
		x.byAddress = slices.Delete(x.byAddress, first+i, first+i+1)
	}
}

// route indexes the devices that the entry's route uses.
func (x *index) route(e *entry) {
	for _, p := range e.route.paths {
		if x.byDevice[p.index] == nil {
			x.byDevice[p.index] = map[*entry]struct{}{}
		}
		x.byDevice[p.index][e] = struct{}{}
	}
}

// unroute is the reverse of route.
func (x *index) unroute(e *entry) {
	if e.route == nil {
		return
	}
	for _, p := range e.route.paths {
		delete(x.byDevice[p.index], e)
		if len(x.byDevice[p.index]) == 0 {
			delete(x.byDevice, p.index)
		}
	}
}

// link has the properties of a network device that the decision needs. It is
// comparable: an event that doesn't change it is ignored.
type link struct {
	index int
	name  string
	// mac is zero if the device has no Ethernet address.
	mac lb.MAC
	mtu int
	// kind of the device in rtnetlink, such as kindVeth; empty for hardware.
	kind string
	// up means that the device is switched on and has a carrier.
	up bool
	// vlan is the id of a VLAN device, else 0; parent is the index of the device
	// below it, and protocol the EtherType of its tags.
	vlan     uint16
	parent   int
	protocol uint16
	// master is the index of the bridge of which the device is a port, or of another
	// device that has its packets; else 0.
	master int
}

// Kinds of devices behind which pods are.
const (
	kindVeth   = "veth"
	kindBridge = "bridge"
)

func linkOf(l netlink.Link) link {
	a := l.Attrs()
	out := link{
		index: a.Index,
		name:  a.Name,
		kind:  l.Type(),
		mtu:   a.MTU,
		// IFF_LOWER_UP and not IFF_RUNNING: it follows the carrier at once, as
		// the flags of routes do.
		up:     a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0,
		master: a.MasterIndex,
	}
	if len(a.HardwareAddr) == len(out.mac) {
		out.mac = lb.MAC(a.HardwareAddr)
	}
	if v, ok := l.(*netlink.Vlan); ok {
		out.vlan, out.parent, out.protocol = uint16(v.VlanId), a.ParentIndex, uint16(v.VlanProtocol)
	}
	return out
}
