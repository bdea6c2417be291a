// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// openSessions opens sessions of both sides' packets and returns their ports.
func openSessions(t *testing.T, p *xdp.Unattached, c natCase, clients int) []uint16 {
	t.Helper()
	ports := make([]uint16, clients)
	for i := range ports {
		c.client = clientOf(c.vip.Address, 1024+i)
		_, out := run(t, p, c.fromClient(0).build())
		ports[i] = sourcePort(t, out)
		run(t, p, c.fromServer(0, ports[i]).build())
	}
	return ports
}

// emptyPlaces deletes all sessions and reports places that are not empty.
func emptyPlaces(t *testing.T, p *xdp.Unattached) {
	t.Helper()
	endAllSessions(t, p)
	for _, m := range []*ebpf.Map{p.Tables.Maps.NatSessions, p.Tables.Maps.NatPending} {
		places := make([]table.BalancerSessionPlace, m.MaxEntries())
		keys := make([]uint32, len(places))
		var cursor ebpf.MapBatchCursor
		if _, err := m.BatchLookup(&cursor, keys, places, nil); err != nil {
			t.Fatal(err)
		}
		for i := range places {
			if near := places[i].Near & (1<<table.BalancerPlaceWindowPLACE_WINDOW - 1); places[i].Key != 0 || near != 0 {
				t.Errorf("%s: empty place %d has key %#x and mask %#x", m, keys[i], places[i].Key, near)
			}
		}
	}
}

func settledKeys(p *xdp.Unattached) (keys []uint64) {
	p.Tables.Sessions.Each(func(key uint64, _ *table.BalancerNatSession) { keys = append(keys, key) })
	return keys
}

// Packets and the agent find the same sessions at the same places, and deleting a
// session doesn't move the others.
func TestPlacesOfSessions(t *testing.T) {
	p := openTestPlane(t, testPins(t), newStaticHops()) // with segments its program would take some ports for tunnels
	for _, c := range []natCase{natCaseOf(vip4, lb.UDP), natCaseOf(vip6, lb.UDP)} {
		update(t, p, c.service())
		ports := openSessions(t, p, c, repeated(3*testCapacity.Sessions/4))
		if n := len(settledKeys(p)); n != 2*len(ports) {
			t.Errorf("%d entries are settled, want %d", n, 2*len(ports))
		}
		deleted := map[uint16]bool{}
		for key, s := range sessionsOf(t, p) {
			if s.ClientPort%2 == 0 {
				deleted[table.WirePort(s.ClientPort)] = true
				p.Tables.Sessions.Delete(key)
			}
		}
		for i, port := range ports {
			c.client = clientOf(c.vip.Address, 1024+i)
			want := "forward_nat_reply"
			if deleted[c.client.Port()] {
				want = "pass_not_vip"
			}
			moved := exits(t, p, func() { run(t, p, c.fromServer(0, port).build()) })
			if moved[want] != 1 {
				t.Fatalf("client %d of %d: %v, want %s", i, len(ports), moved, want)
			}
			_, out := run(t, p, c.fromClient(0).build())
			if got := sourcePort(t, out); got != port && want == "forward_nat_reply" {
				t.Fatalf("client %d of %d has port %d, want %d", i, len(ports), got, port)
			}
		}
		emptyPlaces(t, p)
		remove(t, p, c.vip)
	}
}

// In a full table the sessions that are silent longest make room: sessions of the
// present clients work.
func TestPlacesOfTooManySessions(t *testing.T) {
	p := openTestPlane(t, testPins(t), newStaticHops()) // as above
	c := natCaseOf(vip4, lb.UDP)
	update(t, p, c.service())
	for i := range 3 * testCapacity.Sessions {
		c.client = clientOf(c.vip.Address, 1024+i)
		_, out := run(t, p, c.fromClient(0).build())
		port := sourcePort(t, out)
		for range 2 {
			if moved := exits(t, p, func() { run(t, p, c.fromServer(0, port).build()) }); moved["forward_nat_reply"] != 1 {
				t.Fatalf("client %d: %v", i, moved)
			}
		}
		if i%1024 == 0 {
			silenceSettled(t, p)
		}
	}
	if n := len(settledKeys(p)); n < 2*testCapacity.Sessions {
		t.Errorf("%d entries, want at least %d", n, 2*testCapacity.Sessions)
	}
	emptyPlaces(t, p)
}

// silenceSettled makes all settled sessions a second older.
func silenceSettled(t *testing.T, p *xdp.Unattached) {
	t.Helper()
	for key, s := range sessionsOf(t, p) {
		s.Seen -= 1000
		must(t, table.SessionTable(p.Tables, &s).Put(key, &s))
	}
}

// Two processors and the agent insert and delete at once: nothing is left where there is
// no session.
func TestPlacesAtOnce(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor handles one packet after the other")
	}
	p, _ := newTestPlane(t)
	c := natCaseOf(vip4, lb.UDP)
	update(t, p, c.service())
	program := programOf(t, p)
	done := make(chan struct{})
	var deleting, sending sync.WaitGroup
	deleting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, key := range settledKeys(p) {
				if rand.IntN(4) == 0 {
					p.Tables.Sessions.Delete(key)
				}
			}
		}
	})
	for side := range 2 {
		sending.Go(func() {
			for i := range 8000 {
				c := c
				c.client = clientOf(c.vip.Address, 1024+(i+4000*side)%6000)
				_, out, err := testRun(program, c.fromClient(0).build())
				if err == nil {
					_, _, err = testRun(program, c.fromServer(0, sourcePort(t, out)).build())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	close(done)
	deleting.Wait()
	p.Tables.Sessions.Each(func(key uint64, s *table.BalancerNatSession) {
		if s.State != uint8(table.BalancerNatStateNAT_TWO_WAY) {
			t.Errorf("session %#x is incomplete: %+v", key, s)
		}
	})
	emptyPlaces(t, p)
}
