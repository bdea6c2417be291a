// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// linkID is the kernel's id of the pinned link of an interface.
func linkID(t *testing.T, pin string) link.ID {
	t.Helper()
	l, err := link.LoadPinnedLink(pin, nil)
	must(t, err)
	defer l.Close()
	info, err := l.Info()
	must(t, err)
	return info.ID
}

// An agent of another layout takes the interfaces over: the link stays the same
// one, so there is no moment without a program, and the old tables go.
func TestLayoutHandover(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		p := openOn(t, Config{PinDir: pins, layout: "v0"}, "fl0")
		must(t, p.Attach(t.Context()))
		must(t, p.Close())
		// Agents of the first layout pinned their links with their tables.
		first := filepath.Join(pins, "v0", program.LinkPin("fl0"))
		must(t, os.Rename(filepath.Join(pins, program.LinkPin("fl0")), first))
		before, former := linkID(t, first), attachedProgram(t, "fl0")

		if a := openAttached(t, pins, program.Auto, "fl0")["fl0"]; !a.Adopted {
			t.Errorf("attachment %+v, want adopted", a)
		}
		if after := linkID(t, filepath.Join(pins, program.LinkPin("fl0"))); after != before {
			t.Errorf("link %d, want the old one, %d", after, before)
		}
		if after := attachedProgram(t, "fl0"); after == former || after == 0 {
			t.Errorf("program %d, want another one than %d", after, former)
		}
		if _, err := os.Stat(filepath.Join(pins, "v0")); !os.IsNotExist(err) {
			t.Errorf("the old layout's tables: %v, want none", err)
		}
	})
}

// openSized opens a plane with so large tables.
func openSized(t *testing.T, pins string, capacity table.Capacity) *Plane {
	t.Helper()
	p, err := newPlane(Config{PinDir: pins, Capacity: capacity, Log: slog.New(slog.DiscardHandler)}, fixedHops{})
	must(t, err)
	return p
}

// Tables of flows and of sessions of another size have the records of those before.
func TestFlowTableResize(t *testing.T) {
	pins := testPins(t)
	open := func(flows int) *Plane {
		t.Helper()
		return openSized(t, pins, table.Capacity{Flows: flows, Sessions: 2 * flows})
	}
	want := table.BalancerFlow{Service: 3, Backend: 0x10002, Seen: 9, Place: 77, Client: [16]uint8{15: 1}, Port: 5}
	p := open(1 << 12)
	for key := range uint64(100) {
		must(t, p.tables.Maps.Flows.Put(key, &want))
	}
	must(t, table.GrowSessions(p.tables))
	session := table.BalancerNatSession{Seen: 9, Service: 3, Backend: 0x10002, ClientPort: 5}
	must(t, p.tables.Sessions.Put(7, &session))
	must(t, p.Close())
	p = open(1 << 14)
	defer func() { must(t, p.Close()) }()
	if n := p.tables.Maps.Flows.MaxEntries(); n != 1<<14 {
		t.Errorf("room for %d flows, want %d", n, 1<<14)
	}
	if n := p.tables.Maps.NatSessions.MaxEntries(); n < 1<<16 {
		t.Errorf("%d places for entries of sessions, want at least %d", n, 1<<16)
	}
	sessions := map[uint64]table.BalancerNatSession{}
	p.tables.EachSession(func(key uint64, s *table.BalancerNatSession) { sessions[key] = *s })
	if len(sessions) != 1 || sessions[7] != session {
		t.Errorf("sessions %+v, want %+v", sessions, session)
	}
	records := 0
	err := p.tables.EachFlow(func(_ uint64, flow *table.BalancerFlow) {
		records++
		if *flow != want {
			t.Errorf("record %+v, want %+v", *flow, want)
		}
	})
	if err != nil || records != 100 {
		t.Errorf("%d records, error %v, want 100", records, err)
	}
}

// While a table is resized its pin is always there: an agent that is killed meanwhile
// leaves one of the two tables, and a second pin that doesn't matter.
func TestPinDuringResize(t *testing.T) {
	pins := testPins(t)
	pin := filepath.Join(pins, table.Layout, table.BalancerMapFlows)
	resize := func(flows int) { must(t, openSized(t, pins, table.Capacity{Flows: flows}).Close()) }
	resize(1 << 10)
	left, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = errors.Join(left.Pin(pin+"_new"), left.Close()) // as by an agent that was killed
	}
	must(t, err)
	var missing atomic.Int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if _, err := os.Stat(pin); err != nil {
					missing.Add(1)
				}
			}
		}
	})
	for i := range 20 {
		resize(1 << (11 + i%2))
	}
	close(done)
	watching.Wait()
	if n := missing.Load(); n > 0 {
		t.Errorf("the table was not pinned %d times", n)
	}
}

// A pin directory has one agent at a time, whatever their control sockets and layouts are.
func TestPinLock(t *testing.T) {
	pins := testPins(t)
	first := openTestPlane(t, pins)
	open := func(layout string) error {
		p, err := OpenUnattached(Config{PinDir: pins, Capacity: selfTestCapacity, Log: slog.New(slog.DiscardHandler), layout: layout}, nil)
		if err == nil {
			err = p.Close()
		}
		return err
	}
	for _, layout := range []string{"", "v0"} {
		if err := open(layout); err == nil || !strings.Contains(err.Error(), "another agent") {
			t.Errorf("layout %q: %v", layout, err)
		}
	}
	must(t, first.Close())
	if err := open("v0"); err != nil {
		t.Error(err)
	}
}

// Tables of sessions get their size when the first service needs NAT. They keep it, and an
// agent that was killed meanwhile leaves nothing that the next one can't use.
func TestSessionsGrow(t *testing.T) {
	pins := testPins(t)
	const sessions = 1 << 12
	use := func(f func(p *Plane)) {
		t.Helper()
		p := openSized(t, pins, table.Capacity{Sessions: sessions})
		f(p)
		must(t, p.Close())
	}
	load := func(p *Plane, f program.Features) {
		t.Helper()
		_, err := p.programs.Load(f)
		must(t, err)
	}
	check := func(p *Plane, grown bool) {
		t.Helper()
		for m, least := range map[*ebpf.Map]uint32{p.tables.Maps.NatSessions: 2 * sessions, p.tables.Maps.NatPending: sessions} {
			if n := m.MaxEntries(); n > least != grown || !grown && n > 100 {
				t.Errorf("%s has %d places for %d sessions, want all %v", m, n, sessions, grown)
			}
		}
	}
	use(func(p *Plane) {
		load(p, program.FeatureL2DSR|program.FeatureSources)
		check(p, false)
	})
	use(func(p *Plane) {
		check(p, false)
		// As if it was killed before it had replaced the other one.
		pending := filepath.Join(pins, table.Layout, table.BalancerMapNatPending)
		spec := p.tables.Spec().Maps[table.BalancerMapNatPending]
		spec.MaxEntries, spec.Pinning = 2*sessions, ebpf.PinNone
		large, err := ebpf.NewMap(spec)
		if err == nil {
			err = errors.Join(os.Remove(pending), large.Pin(pending), large.Close())
		}
		must(t, err)
	})
	entry := table.BalancerNatSession{Seen: 9, Service: 3, Backend: 0x10002, ClientPort: 5}
	use(func(p *Plane) {
		check(p, false)
		load(p, program.FeatureNAT)
		check(p, true)
		must(t, p.tables.Sessions.Put(7, &entry))
		load(p, program.FeatureL2DSR)
		load(p, program.FeatureNAT)
		check(p, true)
	})
	use(func(p *Plane) {
		check(p, true)
		found := 0
		p.tables.EachSession(func(key uint64, s *table.BalancerNatSession) {
			if found++; key != 7 || *s != entry {
				t.Errorf("session %d: %+v, want %+v", key, *s, entry)
			}
		})
		if found != 1 {
			t.Errorf("%d sessions, want 1", found)
		}
	})
}
