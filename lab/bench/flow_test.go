// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// A flow moves if another server answers while the last one is still there.
func TestFlowMoves(t *testing.T) {
	for name, test := range map[string]struct {
		// meanwhile is called between the answers of server1 and server2.
		meanwhile func(*Presence)
		moved     bool
	}{
		"it stays":            {func(*Presence) {}, true},
		"another one leaves":  {func(p *Presence) { p.Leave("server2") }, true},
		"it leaves":           {func(p *Presence) { p.Leave("server1") }, false},
		"it leaves and comes": {func(p *Presence) { p.Leave("server1"); p.Arrive("server1") }, false},
	} {
		p := NewPresence([]string{"server1", "server2"})
		f := newFlow(deaf{}, p, 0)
		for n := 1; n <= 3; n++ {
			f.send()
			f.take(fmt.Sprintf("server1 %d", n), time.Now())
		}
		if len(f.moves) > 0 {
			t.Fatalf("%s: moved before anything happened", name)
		}
		test.meanwhile(p)
		f.send()
		f.take("server2 4", time.Now())
		if moved := len(f.moves) == 1; moved != test.moved || len(f.pending) != 0 {
			t.Errorf("%s: moved is %v, %d pending", name, moved, len(f.pending))
		}
	}
}

// Unexpected answers are ignored; overtaken ones only count as not lost.
func TestFlowIgnoresLateAnswers(t *testing.T) {
	f := newFlow(deaf{}, NewPresence([]string{"server1", "server2"}), 0)
	for range 3 {
		f.send()
	}
	for _, answer := range []string{"server1 2", "server2 1", "server2 2", "server2 99", "server2 x", "server2"} {
		f.take(answer, time.Now())
	}
	if _, awaited := f.pending[3]; len(f.moves) > 0 || f.server != "server1" || len(f.pending) != 1 || !awaited {
		t.Errorf("moves %v, at %q, pending %v: want server1 and 3", f.moves, f.server, f.pending)
	}
}

// An answer that is too late leaves the datagram lost.
func TestFlowLate(t *testing.T) {
	f := newFlow(deaf{}, NewPresence([]string{"server1"}), time.Second)
	f.send()
	f.take("server1 1", f.last.Add(time.Second+1))
	if len(f.pending) != 1 || f.server != "" {
		t.Errorf("an answer after more than a second: %d pending, at %q", len(f.pending), f.server)
	}
	f.take("server1 1", f.last.Add(time.Second))
	if len(f.pending) != 0 || f.server != "server1" {
		t.Errorf("an answer after a second: %d pending, at %q", len(f.pending), f.server)
	}
}

// An unanswered datagram is lost, also after an ICMP error.
func TestFlowLoss(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := newFlow(conn, NewPresence([]string{"server1"}), 0)
	f.send()
	buffer := make([]byte, 100)
	n, client, err := server.ReadFromUDPAddrPort(buffer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.WriteToUDPAddrPort([]byte("server1 "+string(buffer[:n])), client); err != nil {
		t.Fatal(err)
	}
	if err := f.receive(time.Now().Add(10 * time.Second)); err != nil || len(f.pending) != 0 || f.server != "server1" {
		t.Fatalf("answered: %v, %d pending, server %q", err, len(f.pending), f.server)
	}
	f.send() // into the silence
	_ = server.Close()
	f.send() // into a port that isn't there
	if err := f.receive(time.Now().Add(50 * time.Millisecond)); err != nil || len(f.pending) != 2 {
		t.Errorf("no server: %v, %d pending, want 2", err, len(f.pending))
	}
}

// deaf takes datagrams and never answers.
type deaf struct{ net.Conn }

func (deaf) Write(p []byte) (int, error) { return len(p), nil }

// Moves count in the second in which they happen, and in the first one if that is before the phase.
func TestFlowTimeline(t *testing.T) {
	counts := newTally()
	f := newFlow(deaf{}, NewPresence(nil), 0)
	for _, after := range []time.Duration{-time.Second, 2500 * time.Millisecond, 2999 * time.Millisecond} {
		f.moves = append(f.moves, counts.began.Add(after))
	}
	counts.flow(f)
	if got := counts.counts; got.Moved != 1 || !slices.Equal(got.MovedAt, Timeline{1, 0, 2}) {
		t.Errorf("%d flows moved, at %v, want one at 1, 0, 2", got.Moved, got.MovedAt)
	}
}
