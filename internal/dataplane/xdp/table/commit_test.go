// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

var errInjected = errors.New("injected")

// watched is memory in which one write fails; every other one is looked at.
type watched struct {
	memory
	left *int // writes until the one that fails
	look func()
}

func (w watched) WriteAt(b []byte, at int64) (int, error) {
	if *w.left--; *w.left == -1 {
		return 0, errInjected
	}
	n, err := w.memory.WriteAt(b, at)
	w.look()
	return n, err
}

// committing is a service in tables whose writes are watched.
type committing struct {
	*Tables
	t       *testing.T
	key     BalancerVipKey
	service Service
	left    int // see watched
	allowed []string
}

func newCommitting(t *testing.T) *committing {
	c := &committing{Tables: openTables(t, Capacity{Services: 16, Backends: 64}), t: t, left: -1, allowed: []string{"none"}}
	c.key = VIPKey(lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP})
	for _, m := range []*memory{
		&c.services, &c.rings, &c.backends, &c.details, &c.egress, &c.remotes, &c.VIPs.places, &c.before, &c.serviceDetails, &c.clientIdle,
		&c.BackendEntries.backends, &c.BackendEntries.table,
	} {
		*m = watched{*m, &c.left, c.look}
	}
	return c
}

// seen is the service as packets see it, without its options.
func (c *committing) seen() string {
	number := uint32(0)
	must(c.t, c.VIPs.Each(func(_ BalancerVipKey, n uint32) error {
		number = n
		return nil
	}))
	if number == 0 {
		return "none"
	}
	raw, err := c.ReadService(number)
	must(c.t, err)
	view := raw.View[raw.Active&1]
	ring, err := c.ReadRing(view.RingBase, view.RingSize, int(view.Slots))
	must(c.t, err)
	previous, err := c.ReadRing(view.PreviousBase, view.PreviousSize, int(view.Slots))
	must(c.t, err)
	text := fmt.Sprint(ring, previous, view.Flags)
	var key BalancerSourceKey
	for it := c.Maps.Sources.Iterate(); it.Next(&key, new([]byte)); {
		if key.List == raw.Sources[raw.Active&1] {
			text += fmt.Sprint(" ", prefixOf(key))
		}
	}
	for i := range uint32(view.Slots) {
		b, err := read[BalancerBackend](c.backends, view.BackendBase+i)
		must(c.t, err)
		e, err := read[BalancerEgress](c.egress, uint32(b.Egress))
		must(c.t, err)
		detail, err := read[BalancerBackendDetail](c.details, view.BackendBase+i)
		must(c.t, err)
		text += fmt.Sprint(" ", b.Generation, b.Destination, e.Ifindex, detail.Port)
	}
	return text
}

// look fails the test if packets see another version than the one before or the next one.
func (c *committing) look() {
	if now := c.seen(); !slices.Contains(c.allowed, now) {
		c.t.Fatalf("packets see %s, want one of %q", now, c.allowed)
	}
}

// used is everything that is taken, and the options.
func (c *committing) used() string {
	c.Sources.Sweep()
	for _, a := range []*Arena{c.Numbers, c.RingChunks, c.BackendEntries.Arena, c.Counters, c.BackendEntries.numbers} {
		a.collect()
	}
	text := fmt.Sprint(c.Numbers.free, c.RingChunks.free, c.BackendEntries.free, c.Counters.free, c.BackendEntries.numbers.free, len(c.BackendEntries.uses), c.Sources.Used)
	if c.service.Number.Size > 0 {
		raw, err := c.ReadService(c.service.Number.Base)
		must(c.t, err)
		idle, err := read[uint64](c.clientIdle, c.service.Number.Base)
		must(c.t, err)
		text += fmt.Sprint(raw.NatIdle, raw.Limit, raw.Quic, idle, raw.PeerLookup, raw.Local)
	}
	var key BalancerServerKey
	var server BalancerServer
	servers := map[string]uint32{}
	for it := c.Maps.Servers.Iterate(); it.Next(&key, &server); {
		servers[string(key.Id[:key.Length])] = server.Backend
	}
	return text + fmt.Sprint(servers)
}

// version is the nth version, with that many backends.
func (c *committing) version(n, backends int) *Writes {
	w := &Writes{
		VIP: c.key, Rings: true, Ring: slices.Repeat([]uint16{uint16(n % backends)}, 7), Previous: slices.Repeat([]uint16{0}, n),
		View:       BalancerView{RingSize: 7, PreviousSize: uint32(n), Slots: uint16(backends), Flags: uint16(BalancerViewFlagVIEW_SOURCES)},
		Generation: uint16(n), Shown: func(Extent) { c.look() },
		Options: Options{
			Values:  Values{NatIdle: uint32(n), Interval: uint64(n), ClientIdle: uint64(n), Local: uint16(n)},
			Servers: map[lb.ServerID]uint32{"all": uint32(n), lb.ServerID(fmt.Sprint(n)): 7},
			Sources: map[netip.Prefix]bool{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 32): true},
		},
	}
	for i := range backends {
		one := &Slot{Detail: BalancerBackendDetail{Port: uint16(1 + i)}}
		one.Generation, one.Destination, one.Ifindex = uint16(100*n+i), [6]byte{2, byte(n)}, uint32(n+i%2)
		w.Slots, w.Begun = append(w.Slots, one), append(w.Begun, uint16(i))
	}
	return w
}

// fails checks that a commit has no effect.
func (c *committing) fails(w *Writes, step string) {
	c.t.Helper()
	before, used, service := c.seen(), c.used(), fmt.Sprint(c.service)
	if _, err := c.Commit(&c.service, w); err == nil {
		c.t.Fatalf("%s: no error", step)
	}
	if c.seen() != before || c.used() != used || fmt.Sprint(c.service) != service {
		c.t.Fatalf("%s: packets see %s, in use is %s, service %v; before: %s, %s, %s", step, c.seen(), c.used(), c.service, before, used, service)
	}
}

// Packets see the version before or the next one after every single store of a commit; and
// whichever of them fails, the version before stays, and nothing is taken.
func TestCommitIsAtomic(t *testing.T) {
	c := newCommitting(t)
	closed, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	must(t, closed.Close())
	for n, backends := range []int{0, 3, 3, 9, 2, 200} {
		if n == 0 {
			continue
		}
		w := c.version(n, backends)
		if backends > 64 {
			c.fails(w, "more backends than the tables hold")
			continue
		}
		for name, broken := range map[string]**ebpf.Map{"servers": &c.Maps.Servers, "sources": &c.Sources.table, "counters": &c.Maps.BackendStats} {
			whole := *broken
			before, used := c.seen(), c.used()
			*broken = closed
			_, err := c.Commit(&c.service, c.version(n, backends))
			*broken = whole
			if err == nil || c.seen() != before || c.used() != used {
				t.Fatalf("without table %s: error %v, packets see %s, in use is %s; before: %s, %s", name, err, c.seen(), c.used(), before, used)
			}
		}
		stores := 0
		for next := c.expected(w); ; stores++ {
			c.allowed = []string{c.seen(), next}
			c.left = stores
			w := c.version(n, backends)
			before, used := c.seen(), c.used()
			done, err := c.Commit(&c.service, w)
			if c.left = -1; err == nil {
				if c.seen() != next || !done.Shown {
					t.Fatalf("version %d: packets see %s, want %s", n, c.seen(), next)
				}
				break
			}
			if c.seen() != before || c.used() != used {
				t.Fatalf("version %d, store %d: packets see %s, in use is %s; before: %s, %s", n, stores, c.seen(), c.used(), before, used)
			}
		}
		if stores < 10 {
			t.Errorf("version %d: %d stores, want many", n, stores)
		}
		c.allowed = []string{c.seen()}
		if done, err := c.Commit(&c.service, &Writes{View: w.View, Options: w.Options}); err != nil || done.Shown {
			t.Errorf("version %d again: shown %v, error %v", n, done.Shown, err)
		}
		must(t, c.Grace.Wait(t.Context(), c.Grace.Now()))
	}
}

// expected is a version as seen returns it.
func (c *committing) expected(w *Writes) string {
	text := fmt.Sprint(w.Ring, w.Previous, w.View.Flags)
	for prefix := range w.Options.Sources {
		text += fmt.Sprint(" ", prefix)
	}
	for _, one := range w.Slots {
		text += fmt.Sprint(" ", one.Generation, one.Destination, one.Ifindex, one.Detail.Port)
	}
	return text
}
