// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

const ms = time.Millisecond

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// probe is a session under test, with its events.
type probe struct {
	*session
	now    time.Time
	events []Event
}

func newProbe(interval time.Duration, multiplier uint8) *probe {
	p := &probe{now: begin}
	peer := Peer{Address: netip.MustParseAddr("192.0.2.1"), BFD: bgp.BFD{Interval: interval, Multiplier: multiplier}}
	p.session = newSession(begin, peer, 7, func() float64 { return 0 }, func(e Event) { p.events = append(p.events, e) })
	p.session.begin()
	return p
}

// said is a packet of the peer, 100 ms × 3.
func said(s state) packet {
	return packet{state: s, multiplier: 3, my: 9, your: 7, desiredMinTx: 100 * ms, requiredMinRx: 100 * ms}
}

func (p *probe) handle(t *testing.T, packets ...packet) {
	t.Helper()
	for i := range packets {
		if err := p.receive(p.now, &packets[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// pass advances the clock, and returns the packets sent meanwhile.
func (p *probe) pass(d time.Duration) (sent []packet) {
	end := p.now.Add(d)
	for {
		if at := p.wake(); at.After(p.now) {
			p.now = at
		}
		if p.now.After(end) {
			p.now = end
			return sent
		}
		p.expire(p.now)
		for {
			out, ok := p.transmit(p.now)
			if !ok {
				break
			}
			sent = append(sent, out)
		}
		if p.finished(p.now) {
			p.now = end
			return sent
		}
	}
}

// one is the only packet that is sent at once.
func (p *probe) one(t *testing.T) packet {
	t.Helper()
	sent := p.pass(0)
	if len(sent) != 1 {
		t.Fatalf("sent %+v, want one packet", sent)
	}
	return sent[0]
}

// newUp is a session that is up, with an interval of 100 ms, and whose poll sequence has ended.
func newUp(t *testing.T, multiplier uint8) *probe {
	t.Helper()
	p := newProbe(100*ms, multiplier)
	p.pass(0)
	p.handle(t, said(down), said(initial))
	p.pass(0)
	final := said(up)
	final.final = true
	p.handle(t, final, said(up))
	if p.state != up {
		t.Fatal("session does not come up")
	}
	return p
}

// The table of RFC 5880 §6.8.6.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		from, receives, to state
		why                Diagnostic
	}{
		{down, adminDown, down, NoDiagnostic},
		{down, down, initial, NoDiagnostic},
		{down, initial, up, NoDiagnostic},
		{down, up, down, NoDiagnostic},
		{initial, adminDown, down, NeighbourSignaledDown},
		{initial, down, initial, NoDiagnostic},
		{initial, initial, up, NoDiagnostic},
		{initial, up, up, NoDiagnostic},
		{up, adminDown, down, NeighbourSignaledDown},
		{up, down, down, NeighbourSignaledDown},
		{up, initial, up, NoDiagnostic},
		{up, up, up, NoDiagnostic},
		{adminDown, adminDown, adminDown, NoDiagnostic},
		{adminDown, down, adminDown, NoDiagnostic},
		{adminDown, initial, adminDown, NoDiagnostic},
		{adminDown, up, adminDown, NoDiagnostic},
	} {
		t.Run(fmt.Sprint(c.from.public(), " receives ", c.receives.public()), func(t *testing.T) {
			p := newProbe(100*ms, 3)
			p.state = c.from
			p.handle(t, said(c.receives))
			if p.state != c.to || p.diagnostic != c.why {
				t.Errorf("got %s (%s), want %s (%s)", p.state.public(), p.diagnostic, c.to.public(), c.why)
			}
			if changed := len(p.events) > 0; changed != (c.from != c.to) {
				t.Errorf("events %+v", p.events)
			}
			if len(p.events) > 0 && p.events[0].RemoteAdminDown != (c.receives == adminDown) {
				t.Errorf("events %+v", p.events[0])
			}
		})
	}
}

// A change of state is sent to the peer at once.
func TestHandshake(t *testing.T) {
	p := newProbe(100*ms, 3)
	if got, want := p.one(t), (packet{state: down, multiplier: 3, my: 7, desiredMinTx: time.Second, requiredMinRx: 100 * ms}); got != want {
		t.Errorf("first packet %+v, want %+v", got, want)
	}
	p.handle(t, said(down))
	if got, want := p.one(t), (packet{state: initial, multiplier: 3, my: 7, your: 9, desiredMinTx: time.Second, requiredMinRx: 100 * ms}); got != want {
		t.Errorf("then %+v, want %+v", got, want)
	}
	p.handle(t, said(up))
	if got, want := p.one(t), (packet{state: up, poll: true, multiplier: 3, my: 7, your: 9, desiredMinTx: 100 * ms, requiredMinRx: 100 * ms}); got != want {
		t.Errorf("then %+v, want %+v", got, want)
	}
}

func TestSilence(t *testing.T) {
	p := newUp(t, 5)
	p.events = nil
	began := p.since
	heard := said(up)
	heard.desiredMinTx = 200 * ms
	p.handle(t, heard)
	p.pass(600*ms - 1)
	if p.state != up {
		t.Fatal("down before three intervals of the peer are over")
	}
	sent := p.pass(1)
	want := Event{
		Peer: p.peer.Address, Began: began, At: p.now, Old: bgp.BFDUp, New: bgp.BFDDown, Diagnostic: DetectionTimeExpired,
	}
	if len(p.events) != 1 || p.events[0] != want || p.flaps != 1 {
		t.Errorf("events %+v, want %+v; %d flaps", p.events, want, p.flaps)
	}
	last := sent[len(sent)-1]
	if last.state != down || last.your != 0 || last.diagnostic != DetectionTimeExpired || last.desiredMinTx != time.Second {
		t.Errorf("said %+v: want down for that reason, slow, without the peer's discriminator", last)
	}
}

// Anyone can send that the session is down, without its discriminator. It counts if the
// peer's own packets end, and from then on.
func TestDownWithoutDiscriminator(t *testing.T) {
	p := newUp(t, 3)
	p.events = nil
	forged := said(down)
	forged.your, forged.my = 0, 99
	forge := func() {
		t.Helper()
		if err := p.receive(p.now, &forged); !errors.Is(err, errUnproven) {
			t.Errorf("error %v", err)
		}
	}
	for range 10 {
		forge()
		p.pass(100 * ms)
		p.handle(t, said(up))
	}
	if p.state != up || p.remote != 9 {
		t.Fatalf("session is %s, with peer %d", p.state.public(), p.remote)
	}
	at := p.now
	for range 3 {
		forge()
		p.pass(100 * ms)
	}
	if len(p.events) != 1 || p.events[0].Diagnostic != NeighbourSignaledDown || !p.events[0].At.Equal(at) {
		t.Errorf("events %+v", p.events)
	}
}

func TestEventConcernsSession(t *testing.T) {
	at := func(after int) time.Time { return begin.Add(time.Duration(after) * ms) }
	since := at(0)
	for name, test := range map[string]struct {
		up, down time.Time
		want     bool
	}{
		"came up in the session":               {at(10), at(20), true},
		"was up before, and long in it":        {at(-500), at(300), true},
		"was up before, and briefly in it":     {at(-500), at(299), false},
		"fell before the session":              {at(-500), at(-1), false},
		"fell before, after a session earlier": {at(-50000), at(-40000), false},
	} {
		event := Event{Old: bgp.BFDUp, New: bgp.BFDDown, Began: test.up, At: test.down}
		if got := event.Concerns(since, &bgp.DefaultBFD); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
		if event.Concerns(since, nil) {
			t.Errorf("%s: concerned after BFD was removed from the configuration", name)
		}
		if event.RemoteAdminDown = true; event.Concerns(since, &bgp.DefaultBFD) {
			t.Errorf("%s: concerned by what the peer does on purpose", name)
		}
	}
}

// A session in init ends like one that is up; one that is down forgets the peer.
func TestSilenceBeforeUp(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.handle(t, said(down))
	p.pass(400 * ms)
	if p.state != down || p.diagnostic != DetectionTimeExpired || p.flaps != 0 {
		t.Errorf("init: got %s, %s, %d flaps", p.state.public(), p.diagnostic, p.flaps)
	}
	p.handle(t, said(adminDown))
	p.pass(400 * ms)
	if p.remote != 0 || p.state != down {
		t.Errorf("down: peer is still %d", p.remote)
	}
}

func TestPollReply(t *testing.T) {
	p := newUp(t, 3)
	p.pass(0)
	asked := said(up)
	asked.poll = true
	p.handle(t, asked)
	if got := p.one(t); !got.final || got.poll {
		t.Errorf("answer %+v: want F without P", got)
	}
	asked.requiredMinRx = 0
	p.handle(t, asked)
	if got := p.one(t); !got.final {
		t.Errorf("to a peer that wants no packets: %+v", got)
	}
}

// A poll is sent also to a peer in demand mode, until it is answered.
func TestPollInDemandMode(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.pass(0)
	demand := said(up)
	demand.demand = true
	p.handle(t, said(down), demand)
	if sent := p.pass(250 * ms); len(sent) != 3 || !sent[0].poll || !sent[2].poll {
		t.Errorf("sent %+v, want three polls", sent)
	}
	demand.final = true
	p.handle(t, demand)
	if sent := p.pass(250 * ms); len(sent) > 0 {
		t.Errorf("answered, but sent %+v", sent)
	}
}

// RFC 5880 §6.8.7: nothing periodic to a peer that wants none or demands.
func TestSilentPeers(t *testing.T) {
	zero, demand := said(up), said(up)
	zero.requiredMinRx = 0
	demand.demand = true
	for name, heard := range map[string]packet{"min rx 0": zero, "demand mode": demand} {
		p := newUp(t, 3)
		p.handle(t, heard)
		for range 10 {
			if sent := p.pass(100 * ms); len(sent) > 0 {
				t.Errorf("%s: sent %+v", name, sent)
			}
			p.handle(t, heard)
		}
		if p.state != up {
			t.Errorf("%s: session is %s", name, p.state.public())
		}
		p.pass(400 * ms)
		if p.state != down {
			t.Errorf("%s: a silent peer is not found", name)
		}
	}
}

func TestAuthenticationRefused(t *testing.T) {
	p := newProbe(100*ms, 3)
	signed := said(down)
	signed.authenticated = true
	if err := p.receive(begin, &signed); !errors.Is(err, errAuthenticated) || p.state != down || p.remote != 0 {
		t.Errorf("got %v, %s", err, p.state.public())
	}
}

func TestDisable(t *testing.T) {
	p := newUp(t, 3)
	p.events = nil
	p.disable(p.now)
	if got := p.one(t); got.state != adminDown || got.diagnostic != AdministrativelyDown {
		t.Errorf("said %+v", got)
	}
	p.pass(10 * ms)
	p.handle(t, said(up)) // sent before it received that
	if got := p.one(t); got.state != adminDown {
		t.Errorf("said %+v", got)
	}
	if p.finished(p.now) {
		t.Error("left before the peer knows")
	}
	p.handle(t, said(down))
	if !p.finished(p.now) || len(p.events) > 0 {
		t.Errorf("not finished though the peer has confirmed; events %+v", p.events)
	}
}

// A disabled session whose peer never sent anything sends once. A peer that doesn't
// react gets packets for the detection time.
func TestDisableUnresponsive(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.pass(0)
	p.disable(p.now)
	if got := p.one(t); got.state != adminDown || !p.finished(p.now) {
		t.Errorf("never received: sent %+v, left: %v", got, p.finished(p.now))
	}
	p = newUp(t, 3)
	p.disable(p.now)
	p.pass(299 * ms)
	if p.finished(p.now) {
		t.Error("left too early")
	}
	p.pass(ms)
	if !p.finished(p.now) {
		t.Error("not left after the detection time")
	}
}

// A new session resumes one that the peer still has with a former process, if that is
// the first packet and in time.
func TestResume(t *testing.T) {
	stale := said(up)
	stale.your = 1234
	later := stale
	later.requiredMinRx = 300 * ms
	for name, c := range map[string]struct {
		packet packet
		after  time.Duration
		before func(p *probe)
		want   bool
	}{
		"at once":                     {packet: stale, want: true},
		"in the last moment":          {packet: stale, after: 300 * ms, want: true},
		"too late":                    {packet: stale, after: 301 * ms},
		"the peer listens less often": {packet: later, after: 900 * ms, want: true},
		"and then too late":           {packet: later, after: 901 * ms},
		"the peer isn't up":           {packet: packet{state: initial, multiplier: 3, my: 9, your: 1234}},
		"it has begun":                {packet: stale, before: func(p *probe) { p.begin() }, want: true},
		"the peer has sent packets":   {packet: stale, before: func(p *probe) { p.begin(); p.handle(t, said(adminDown)) }},
		"it is left":                  {packet: stale, before: func(p *probe) { p.disable(p.now) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbe(100*ms, 3)
			p.passive, p.urgent = true, false
			p.now = begin.Add(c.after)
			if c.before != nil {
				c.before(p)
			}
			if got := p.resume(p.now, &c.packet); got != c.want {
				t.Fatalf("resumed: %t, want %t", got, c.want)
			}
			if !c.want {
				return
			}
			p.handle(t, c.packet)
			if out := p.one(t); p.state != up || out.state != up || out.my != 1234 || out.your != 9 {
				t.Errorf("%s, says %+v", p.state.public(), out)
			}
		})
	}
}

// A packet that hasn't come over the path to the peer resumes no session.
func TestResumeForged(t *testing.T) {
	const loopback = 1
	peer := Peer{Address: netip.MustParseAddr("127.0.0.1"), MaxHops: 2, BFD: bgp.DefaultBFD}
	stale := packet{state: up, multiplier: 3, my: 9, your: 1234, requiredMinRx: time.Hour}
	payload := stale.bytes()
	for name, c := range map[string]struct {
		multihop bool
		datagram datagram
		want     uint32
	}{
		"peer":                        {false, datagram{from: peer.Address, hops: hopLimit, device: loopback}, stale.your},
		"behind a router":             {false, datagram{from: peer.Address, hops: hopLimit - 1, device: loopback}, 7},
		"other interface":             {false, datagram{from: peer.Address, hops: hopLimit, device: loopback + 1}, 7},
		"other address":               {false, datagram{from: peer.Address.Next(), hops: hopLimit, device: loopback}, 7},
		"multihop":                    {true, datagram{from: peer.Address, hops: hopLimit - 1, device: loopback + 1}, stale.your},
		"multihop beyond the maximum": {true, datagram{from: peer.Address, hops: hopLimit - 2, device: loopback}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListener(link{multihop: c.multihop}, slog.New(slog.DiscardHandler), new(sync.Once))
			l.add(newSession(time.Now(), peer, 7, func() float64 { return 0 }, func(Event) {}))
			c.datagram.payload = payload[:]
			l.handle(&c.datagram)
			if m := l.peers[peer.Address]; m.local != c.want || m.passive != (c.want == 7) || l.sessions[c.want] != m {
				t.Errorf("the session has discriminator %d, passive %t; want %d", m.local, m.passive, c.want)
			}
		})
	}
}

// A session sends nothing until it begins, whatever it receives.
func TestListening(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.passive, p.urgent = true, false
	hello := said(down)
	hello.your = 0
	if err := p.receive(p.now, &hello); !errors.Is(err, errPassive) {
		t.Errorf("error %v", err)
	}
	if sent := p.pass(time.Hour); len(sent) > 0 || len(p.events) > 0 {
		t.Errorf("sent %+v, events %+v", sent, p.events)
	}
	p.begin()
	p.one(t)
	p.handle(t, hello)
	if out := p.one(t); out.state != initial {
		t.Errorf("says %+v", out)
	}
}
