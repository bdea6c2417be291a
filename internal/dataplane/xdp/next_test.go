// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/dataplane/xdp/tracking"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// simulated is a balancer of one service without a kernel. next and settled make its versions,
// and its packets know only the writes.
type simulated struct {
	balanced
	state      *service
	now        time.Duration
	generation uint16
	written    table.Writes
	flows      map[uint64]*table.BalancerFlow
	shape      dataplanetest.Shape
	counts     dataplanetest.Counts
}

func newSimulated(t *testing.T, svc lb.Service) *simulated {
	b := &simulated{
		balanced: balanced{t: t, hops: lossyHops{lost: map[netip.Addr]bool{}}, service: svc, ids: map[lb.MAC]lb.BackendID{}},
		now:      time.Hour, flows: map[uint64]*table.BalancerFlow{},
		state: &service{now: &version{ring: &tracking.Ring{}}},
	}
	b.shape = b.balanced.shape(24, 7)
	b.plane = &Plane{config: Config{Seed: 1}, resolver: b.hops, catalog: &catalog{services: map[lb.VIP]*service{}}, loader: &loader{}}
	return b
}

// commit is Tables.Commit for a balancer without tables.
func (b *simulated) commit(v *version, w table.Writes) {
	if !w.Rings {
		w.Ring, w.Previous = b.written.Ring, b.written.Previous
	}
	if w.Slots == nil {
		w.Slots = b.written.Slots
	}
	b.written, b.generation, b.state.now = w, w.Generation, v
	b.plane.services[b.service.VIP] = b.state
}

func (b *simulated) Update(backends []dataplanetest.Backend, reachable func(netip.AddrPort) bool) error {
	svc := b.serve(backends, reachable)
	pl, err := b.plane.plan(svc)
	if err != nil {
		return err
	}
	before := *b.state.now
	v, w, err := next(b.state.now, &pl, moment{now: b.now, generation: b.generation})
	if err != nil {
		return err
	}
	if before.ring != b.state.now.ring || !sameSlots(before.slots, b.state.now.slots) {
		return fmt.Errorf("next changes the version before")
	}
	b.commit(v, w)
	b.state.idle, b.state.backends, b.state.known = svc.Idle()+idleSlack, pl.backends[:len(pl.ring)], true
	return nil
}

func (b *simulated) Pass(d time.Duration) error {
	b.now += d
	return nil
}

func (b *simulated) clock() uint32 { return uint32(b.now >> table.FlowTimeShift) }

func (b *simulated) Sweep() error {
	sw := newSwept(b.service.VIP, b.state)
	sw.readAt = b.clock()
	for key, flow := range b.flows {
		sw.add(key, flow)
	}
	shown := sw.settled(b.now)
	b.commit(shown, shown.writes(b.service.VIP, b.state.now, b.generation))
	for _, key := range sw.unneeded(shown) {
		if !sw.needs(shown, b.flows[key]) {
			delete(b.flows, key)
		}
	}
	return nil
}

// Restart has the next agent adopt the version that was written.
func (b *simulated) Restart() error {
	v := &version{
		ring: tracking.Adopt(b.written.Ring, b.written.Previous, b.now), slots: make([]slot, len(b.written.Slots)),
		flags: table.BalancerViewFlag(b.written.View.Flags), options: b.written.Options,
	}
	for i, one := range b.written.Slots {
		v.slots[i] = slot{Slot: *one}
		v.slots[i].wasUsable = v.slots[i].usable()
	}
	b.state = &service{now: v}
	b.plane.services[b.service.VIP] = b.state
	return nil
}

// slot is a slot as packets see it.
func (b *simulated) slot(number uint32) *slot {
	if int(number) >= len(b.written.Slots) {
		return nil
	}
	return &slot{Slot: *b.written.Slots[number]}
}

// recorded is the usable backend that a record names, or nil.
func (b *simulated) recorded(record uint32) *slot {
	if one := b.slot(record & 0xffff); one != nil && one.usable() && one.record(uint16(record)) == record {
		return one
	}
	return nil
}

// Send does as flow_backend of bpf/pick/flow.h.
func (b *simulated) Send(flow int, phase dataplanetest.Phase) (id netip.AddrPort, ok bool, err error) {
	of, w := b.shape.Flows[flow], &b.written
	if int(w.View.RingSize) != len(w.Ring) || int(w.View.PreviousSize) != len(w.Previous) || int(w.View.Slots) != len(w.Slots) {
		return id, false, fmt.Errorf("view %+v of %d entries, %d before, and %d slots", w.View, len(w.Ring), len(w.Previous), len(w.Slots))
	}
	if len(w.Ring) == 0 {
		return id, false, nil
	}
	ring, past := tracking.Ring{Entries: w.Ring}, tracking.Ring{Entries: w.Previous}
	entry := w.Ring[ring.Place(of.Place)]
	slot := uint32(tracking.Slot(entry))
	if entry&tracking.Unstable == 0 && w.View.Flags&uint16(table.BalancerViewFlagVIEW_TRACK_ALL) == 0 {
		return b.slot(slot).id(), true, nil
	}
	const opening, open, older, reopened = uint8(table.BalancerFlowOpenFLOW_OPENING), uint8(table.BalancerFlowOpenFLOW_OPEN), uint8(table.BalancerFlowOpenFLOW_OLDER), uint8(table.BalancerFlowOpenFLOW_REOPENED)
	known, syn := b.flows[of.Key], phase == dataplanetest.Opening
	if known != nil {
		named := known.Backend
		if known.Open == reopened && !syn {
			named = known.Opening
		}
		home := b.recorded(named)
		if home != nil && (!syn || known.Open != opening && home.has(table.BalancerBackendFlagBACKEND_NEW_FLOWS)) {
			if known.Backend = named; known.Open == opening || known.Open == reopened {
				known.Open = open
			}
			known.Seen = b.clock()
			b.counts.Hits++
			return home.id(), true, nil
		}
		syn = syn && home != nil && known.Open != opening // and of an open flow
	} else {
		syn = false
	}
	if phase != dataplanetest.Opening {
		b.counts.Misses++
	}
	if phase == dataplanetest.Open && entry&tracking.Unstable != 0 && len(w.Previous) > 0 {
		if earlier := uint32(w.Previous[past.Place(of.Place)]); b.slot(earlier) != nil && b.slot(earlier).usable() {
			slot = earlier
		}
	}
	chosen := b.slot(slot)
	if chosen == nil {
		return id, false, nil
	}
	if known == nil {
		b.counts.Inserts++
		known = &table.BalancerFlow{Service: 1, Place: of.Place}
		b.flows[of.Key] = known
	}
	known.Seen = b.clock()
	if syn {
		known.Opening, known.Open = chosen.record(uint16(slot)), reopened
		return chosen.id(), true, nil
	}
	known.Backend, known.Open = chosen.record(uint16(slot)), opening
	if phase == dataplanetest.Open {
		known.Open = older
	}
	return chosen.id(), true, nil
}

func (b *simulated) State() (dataplanetest.State, error) {
	v := b.state.now
	return dataplanetest.State{Counts: b.counts, Recorded: len(b.flows), Unstable: v.ring.Unstable(), Seats: len(slotNumbers(v.slots))}, nil
}

// The agent's part of tracking agrees with the model over long random histories, without a kernel.
func TestNextHistories(t *testing.T) {
	const steps = 1000
	services := historyServices()
	for name, svc := range services {
		t.Run(name, func(t *testing.T) {
			seed := fuzzrand.Seed(t)
			b := newSimulated(t, svc)
			must(t, dataplanetest.NewHistory(rand.New(rand.NewPCG(seed, 0)), b.shape, b).Run(steps))
		})
	}
	fuzzrand.Covered(t, len(services), len(services)*steps)
}
