// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Service is where a service lies in the tables. The zero value isn't in them.
type Service struct {
	Number  Extent // of size 1
	View    uint32 // the one in use
	Flipped Ticket // when it came into use; the other view may be written when it is over
	// Ring and Previous are the ring and its past. Counters is a row that may be longer than
	// Backends, whose counters it has.
	Ring, Previous, Backends, Counters Extent
	Options                            Options
	sources                            SourceList
	flags                              uint16
}

// Options are the optional properties of a service. All but Sources are the same for both
// views, and in effect as soon as they are written.
type Options struct {
	Values
	// Servers are the backends by the server IDs of QUIC, as flow records name them.
	Servers map[lb.ServerID]uint32
	// Sources are the prefixes of clients that may use the service, or may not.
	Sources map[netip.Prefix]bool
}

// Values are the options that are fields of a service; 0 is a service without them.
type Values struct {
	// NatIdle is how long an established NAT session may be silent, in the unit of flow
	// records.
	NatIdle uint32
	// Interval and SourceInterval are the time between two new flows (bpf/pick/admit.h).
	Interval, SourceInterval uint64
	// ClientIdle is for how many nanoseconds a client that begins no flow is remembered.
	ClientIdle uint64
	Quic       BalancerQuic
	PeerLookup BalancerPeerLookup
	// Local is the slot that gets flows relayed here, plus 1.
	Local uint16
}

func (o *Options) equal(p *Options) bool {
	return o.Values == p.Values && maps.Equal(o.Servers, p.Servers) && maps.Equal(o.Sources, p.Sources)
}

// Slot is a backend of a service.
type Slot struct {
	Backend
	Detail BalancerBackendDetail
	// NewFlowsBefore is the value of the slot's counter of new flows when the backend got it.
	NewFlowsBefore uint64
}

// Before is the value of the slot's counter when the backend got it, less the backend's
// traffic on another counter.
func (s *Slot) Before() dataplane.Traffic {
	return dataplane.Traffic{Packets: s.Detail.Before.Packets, Bytes: s.Detail.Before.Bytes, NewFlows: s.NewFlowsBefore}
}

// Begin sets the value that Before returns.
func (s *Slot) Begin(before dataplane.Traffic) {
	s.Detail.Before = BalancerTraffic{Packets: before.Packets, Bytes: before.Bytes}
	s.NewFlowsBefore = before.NewFlows
}

func (s *Slot) taken() bool { return s.Detail.Port != 0 }

// Writes are the differences of a service's next version from the one that packets see.
type Writes struct {
	VIP BalancerVipKey
	// View is the next view, but for where its parts lie.
	View BalancerView
	// Ring and Previous are written if Rings is set.
	Rings          bool
	Ring, Previous []uint16
	// Slots are all slots, if one of them differs. Begun are those that have another backend than
	// before; Commit sets where their counters begin.
	Slots []*Slot
	Begun []uint16
	// Generation is the one that was given to a slot last.
	Generation uint16
	Options    Options
	// Shown is called when packets see the version, before elements of the one before are
	// retired.
	Shown func(backends Extent)
}

// Committed is a version that packets see.
type Committed struct {
	// Shown is set unless the version is the same for packets as the one before.
	Shown bool
	// Before is where the service was.
	Before Service
	// Moved has the values of the counters before, if all slots have others now.
	Moved []dataplane.Traffic
}

// Commit makes packets see the next version of a service: it writes parts that differ into free
// elements of the tables, writes the unused view, flips the views, and retires elements that only
// the version before used. A service that isn't in the tables gets a number and its VIP. After
// an error packets see the version before, and nothing is taken.
func (t *Tables) Commit(s *Service, w *Writes) (Committed, error) {
	if s.Number.Size > 0 && !w.Rings && w.Slots == nil && w.View.Flags == s.flags && w.Options.equal(&s.Options) {
		return Committed{}, nil
	}
	c := commit{Tables: t, Writes: w, before: s, next: *s, done: Committed{Shown: true, Before: *s}}
	c.next.flags, c.next.Options = w.View.Flags, w.Options
	err := c.stage()
	if err == nil {
		err = c.publish()
	}
	if err != nil {
		c.discard()
		return Committed{}, err
	}
	t.generation = w.Generation
	w.Shown(c.next.Backends)
	c.retire()
	*s = c.next
	return c.done, nil
}

// Free retires everything that a service uses, which packets don't find any more. After an error
// it can be repeated.
func (t *Tables) Free(s *Service, after Ticket) error {
	if err := t.replaceServers(s.Number.Base, s.Options.Servers, nil); err != nil {
		return err
	}
	t.Sources.Retire(s.sources, after)
	t.Numbers.Retire(s.Number, after)
	t.Counters.Retire(s.Counters, after)
	for _, e := range t.extents(s) {
		e.Retire(e.extent, after)
	}
	return nil
}

// part is an extent of an arena.
type part struct {
	arena
	extent Extent
}

// arena is an Arena or a BackendArena.
type arena interface {
	Retire(run Extent, after Ticket)
	Release(run Extent)
	Reserve(run Extent) error
}

// extents are the parts of a service but its number and its counters.
func (t *Tables) extents(s *Service) [3]part {
	return [3]part{{t.RingChunks, s.Ring}, {t.RingChunks, s.Previous}, {t.BackendEntries, s.Backends}}
}

// AdoptService returns where an earlier agent's service lies, and marks its elements as used.
// Server IDs stay if their records are named.
func (t *Tables) AdoptService(number uint32, raw *BalancerService, named func(record uint32) bool) (Service, error) {
	at := uint32(raw.Active & 1)
	view := &raw.View[at]
	slots := int(view.Slots)
	s := Service{
		Number:   Extent{Base: number, Size: 1},
		View:     at,
		Ring:     Extent{Base: view.RingBase, Size: Chunks(view.RingSize, slots)},
		Previous: Extent{Base: view.PreviousBase, Size: Chunks(view.PreviousSize, slots)},
		Backends: Extent{Base: view.BackendBase, Size: uint32(slots)},
		Counters: Extent{Base: view.StatsBase, Size: uint32(slots)},
		flags:    view.Flags,
	}
	err := t.adoptOptions(&s, raw, named)
	if err == nil {
		err = errors.Join(t.Numbers.Reserve(s.Number), t.Counters.Reserve(s.Counters))
	}
	for _, e := range t.extents(&s) {
		if err == nil {
			err = e.Reserve(e.extent)
		}
	}
	return s, err
}

// adoptOptions reads an earlier agent's options.
func (t *Tables) adoptOptions(s *Service, raw *BalancerService, named func(record uint32) bool) (err error) {
	o := &s.Options
	o.Values = Values{
		NatIdle: raw.NatIdle, Interval: raw.Limit.Interval, SourceInterval: raw.Limit.SourceInterval,
		Quic: raw.Quic, PeerLookup: raw.PeerLookup, Local: raw.Local,
	}
	if o.ClientIdle, err = read[uint64](t.clientIdle, s.Number.Base); err != nil {
		return err
	}
	if BalancerViewFlag(s.flags)&BalancerViewFlagVIEW_SOURCES != 0 {
		if s.sources, err = t.Sources.Claim(raw.Sources[s.View]); err != nil {
			return err
		}
		o.Sources = s.sources.verdicts
	}
	found := t.claimServers(s.Number.Base)
	o.Servers = maps.Clone(found)
	maps.DeleteFunc(o.Servers, func(_ lb.ServerID, record uint32) bool { return !named(record) })
	return t.replaceServers(s.Number.Base, found, o.Servers)
}

// commit is a commit under way.
type commit struct {
	*Tables
	*Writes
	before *Service
	next   Service
	done   Committed
}

// take gives a part of a service other elements; after an error it has those that it had.
func take(e *Extent, alloc func() (Extent, error)) error {
	got, err := alloc()
	if err == nil {
		*e = got
	}
	return err
}

// stage writes the parts that no packet reads before the version is published.
func (c *commit) stage() error {
	if err := c.stageCounters(); err != nil {
		return err
	}
	slots := int(c.View.Slots)
	if c.Rings {
		if err := take(&c.next.Ring, func() (Extent, error) { return c.stageRing(c.Ring, slots) }); err != nil {
			return err
		}
		if err := take(&c.next.Previous, func() (Extent, error) { return c.stageRing(c.Previous, slots) }); err != nil {
			return err
		}
	}
	if c.Slots != nil {
		if err := take(&c.next.Backends, func() (Extent, error) { return c.BackendEntries.Alloc(uint32(slots)) }); err != nil {
			return err
		}
		for i, one := range c.Slots {
			if err := c.WriteBackend(c.next.Backends.Base+uint32(i), one.Backend, one.Detail); err != nil {
				return err
			}
		}
	}
	list, err := c.Sources.Stage(c.next.sources, c.Options.Sources)
	if err == nil {
		c.next.sources = list
	}
	return err
}

// stageCounters records the values of the counters of the slots begun, which are exact: these
// counters count nothing at present. If there are more slots than counters in the row, all
// slots get others, which begin with the present values of the former ones.
func (c *commit) stageCounters() (err error) {
	if len(c.Begun) == 0 {
		return nil
	}
	counters, begun := c.CounterReader(), slices.Clone(c.Begun)
	counted, fresh := make([]dataplane.Traffic, len(c.Slots)), make([]bool, len(c.Slots))
	for _, n := range begun {
		fresh[n] = true
	}
	if len(c.Slots) > int(c.next.Counters.Size) {
		c.done.Moved = make([]dataplane.Traffic, c.next.Counters.Size)
		for n := range c.done.Moved {
			if !c.Slots[n].taken() || fresh[n] {
				continue
			}
			if c.done.Moved[n], err = counters.Read(c.next.Counters.Base + uint32(n)); err != nil {
				return err
			}
			counted[n] = c.done.Moved[n].Sub(c.Slots[n].Before())
			begun = append(begun, uint16(n))
		}
		if err := take(&c.next.Counters, func() (Extent, error) { return AllocCounters(c.Tables, len(c.Slots)) }); err != nil {
			return err
		}
	}
	slices.Sort(begun)
	for _, n := range begun {
		index := c.next.Counters.Base + uint32(n)
		before, err := counters.Read(index)
		if err != nil {
			return err
		}
		c.Slots[n].Begin(before.Sub(counted[n]))
		if err := WriteNewFlowsBefore(c.Tables, index, c.Slots[n].NewFlowsBefore); err != nil {
			return err
		}
	}
	return nil
}

// stageRing writes a ring of a service with that many slots.
func (c *commit) stageRing(ring []uint16, slots int) (Extent, error) {
	e, err := c.RingChunks.Alloc(Chunks(uint32(len(ring)), slots))
	if err != nil {
		return Extent{}, err
	}
	buf := make([]byte, 0, 2*len(ring))
	for _, entry := range ring {
		if Few(slots) {
			buf = append(buf, byte(entry>>8&0x80|entry&0x7f))
		} else {
			buf = binary.NativeEndian.AppendUint16(buf, entry)
		}
	}
	if _, err := c.rings.WriteAt(buf, int64(e.Base)*int64(unsafe.Sizeof(BalancerRingChunk{}))); err != nil {
		c.RingChunks.Release(e)
		return Extent{}, err
	}
	return e, nil
}

// publish makes a staged version visible, last of all by one store.
func (c *commit) publish() error {
	c.next.View = 1 - c.before.View
	fresh := c.before.Number.Size == 0
	if fresh {
		if err := take(&c.next.Number, func() (Extent, error) { return c.Numbers.Alloc(1) }); err != nil {
			return err
		}
		if err := c.beginService(c.next.Number.Base, c.VIP); err != nil {
			return err
		}
	}
	number, view := c.next.Number.Base, c.View
	view.RingBase, view.PreviousBase = c.next.Ring.Base, c.next.Previous.Base
	view.BackendBase, view.StatsBase = c.next.Backends.Base, c.next.Counters.Base
	err := errors.Join(
		WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.View)+uintptr(c.next.View)*unsafe.Sizeof(view), view),
		WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.Sources)+uintptr(c.next.View)*unsafe.Sizeof(number), c.next.sources.Number.Base),
		c.writeOptions(number, &c.next.Options, &c.before.Options),
	)
	if err == nil {
		// One aligned store of two bytes, which Go's memmove and the processor do at once.
		c.VIPs.orderStores()
		err = WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.Active), uint16(c.next.View))
	}
	if err == nil && fresh {
		err = c.VIPs.Put(c.VIP, number)
	}
	if err != nil {
		err = errors.Join(err, c.writeOptions(number, &c.before.Options, &c.next.Options))
	}
	return err
}

// retire frees the parts that only the version before used, once packets have left it.
func (c *commit) retire() {
	c.next.Flipped = c.Grace.Now()
	before := c.extents(c.before)
	for i, e := range c.extents(&c.next) {
		if e != before[i] {
			before[i].Retire(before[i].extent, c.next.Flipped)
		}
	}
	if c.next.sources.Number != c.before.sources.Number {
		c.Sources.Retire(c.before.sources, c.next.Flipped)
	}
}

// discard frees the parts of a version that no packet has seen.
func (c *commit) discard() {
	former := c.extents(c.before)
	for i, e := range c.extents(&c.next) {
		if e != former[i] {
			e.Release(e.extent)
		}
	}
	if c.next.Counters != c.before.Counters {
		c.Counters.Release(c.next.Counters)
	}
	if c.next.Number != c.before.Number {
		c.Numbers.Release(c.next.Number)
	}
	if c.next.sources.Number != c.before.sources.Number {
		c.Sources.Retire(c.next.sources, 0)
	}
}

// beginService clears a service's number for a new service.
func (c *commit) beginService(number uint32, key BalancerVipKey) error {
	return errors.Join(
		WriteService(c.Tables, number, 0, BalancerService{}),
		WriteServiceDetail(c.Tables, number, 0, BalancerServiceDetail{Vip: key}),
		c.Maps.FlowStats.Put(number, make([]BalancerFlowStats, ebpf.MustPossibleCPU())),
	)
}

// writeOptions stores options in the place of others. Packets may be using them: each is one
// store, and the used part of a limit stays.
func (c *commit) writeOptions(number uint32, next, before *Options) error {
	if err := c.replaceServers(number, before.Servers, next.Servers); err != nil {
		return err
	}
	limit := unsafe.Offsetof(BalancerService{}.Limit)
	return errors.Join(
		WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.NatIdle), next.NatIdle),
		WriteService(c.Tables, number, limit+unsafe.Offsetof(BalancerLimit{}.Interval), next.Interval),
		WriteService(c.Tables, number, limit+unsafe.Offsetof(BalancerLimit{}.SourceInterval), next.SourceInterval),
		WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.Quic), next.Quic),
		write(c.clientIdle, uintptr(number)*unsafe.Sizeof(next.ClientIdle), next.ClientIdle),
		WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.PeerLookup), next.PeerLookup),
		WriteService(c.Tables, number, unsafe.Offsetof(BalancerService{}.Local), next.Local),
	)
}
