// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/fuzzrand"
)

// pair is two sessions and the wire between them, in a time of its own.
type pair struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	ends   [2]*session
	events [2][]Event
	// flying are packets on the wire.
	flying []flight
	// delay bounds how long a packet takes, loss is the part that gets lost, cut
	// loses all.
	delay time.Duration
	loss  float64
	cut   bool
}

type flight struct {
	packet  packet
	to      int
	arrives time.Time
}

func newPair(t *testing.T, random *rand.Rand) *pair {
	p := &pair{t: t, random: random, now: begin, delay: time.Duration(random.Int64N(int64(5 * ms)))}
	for i := range p.ends {
		peer := Peer{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), BFD: p.draw()}
		record := func(e Event) { p.events[i] = append(p.events[i], e) }
		p.ends[i] = newSession(begin, peer, random.Uint32()|1, random.Float64, record)
		p.ends[i].begin()
	}
	return p
}

// draw is a configuration of those that people use.
func (p *pair) draw() bgp.BFD {
	return bgp.BFD{
		Interval:   time.Duration(10+p.random.IntN(1500)) * ms,
		Multiplier: uint8(2 + p.random.IntN(5)),
	}
}

// pass lets time go by.
func (p *pair) pass(d time.Duration) {
	for end := p.now.Add(d); ; {
		next := end
		for _, f := range p.flying {
			next = earlier(next, f.arrives)
		}
		for _, s := range p.ends {
			next = earlier(next, s.wake())
		}
		if next.After(p.now) {
			p.now = next
		}
		p.step()
		if !p.now.Before(end) {
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// step runs one step of a listener: arrivals first, then each session.
func (p *pair) step() {
	flying := p.flying
	p.flying = nil
	for _, f := range flying {
		if f.arrives.After(p.now) {
			p.flying = append(p.flying, f)
			continue
		}
		if err := p.ends[f.to].receive(p.now, &f.packet); err != nil && !errors.Is(err, errUnproven) {
			p.t.Fatal(err)
		}
	}
	for i, s := range p.ends {
		s.expire(p.now)
		for {
			out, due := s.transmit(p.now)
			if !due {
				break
			}
			p.send(i, out)
		}
	}
}

func (p *pair) send(from int, out packet) {
	switch {
	case out.poll && out.final:
		p.t.Errorf("packet with P and F: %+v", out)
	case out.state != up && out.desiredMinTx < slow:
		p.t.Errorf("packet that is not up offers %s: %+v", out.desiredMinTx, out)
	}
	if p.cut || p.random.Float64() < p.loss {
		return
	}
	p.flying = append(p.flying, flight{out, 1 - from, p.now.Add(time.Duration(p.random.Int64N(int64(p.delay) + 1)))})
}

// detection is the longest time in which a failure may be found with the ends'
// configuration.
func (p *pair) detection() time.Duration {
	slowest := max(p.ends[0].peer.Interval, p.ends[1].peer.Interval)
	return slowest*time.Duration(max(p.ends[0].peer.Multiplier, p.ends[1].peer.Multiplier)) + 2*p.delay
}

func (p *pair) wantStates(what string, want state) {
	p.t.Helper()
	for i, s := range p.ends {
		if s.state != want {
			p.t.Fatalf("%s: end %d is %s, want %s: %+v", what, i, s.state.public(), want.public(), p.events[i])
		}
	}
}

// Whatever two ends are configured to do: they come up; while nothing is lost
// they stay up; and a cut is found in time.
func TestPairs(t *testing.T) {
	seed := fuzzrand.Seed(t)
	const pairs = 300
	for n := range uint64(pairs) {
		if !t.Run(strconv.FormatUint(n, 10), func(t *testing.T) { history(newPair(t, rand.New(rand.NewPCG(seed, n)))) }) {
			return
		}
	}
	fuzzrand.Covered(t, pairs, pairs*cuts)
}

// cuts are the failures in a history of a pair.
const cuts = 5

func history(p *pair) {
	// Slow packets, one each way to begin with; some get lost.
	p.loss = 0.2
	p.pass(5 * time.Second)
	p.loss = 0
	p.pass(p.detection() + 5*time.Second)
	p.wantStates("begin", up)
	for range cuts {
		before := [2]int{len(p.events[0]), len(p.events[1])}
		p.pass(3 * p.detection())
		p.wantStates("nothing is lost", up)
		for i := range before {
			if len(p.events[i]) > before[i] {
				p.t.Fatalf("end %d: without a loss %+v", i, p.events[i][before[i]:])
			}
			if p.ends[i].poll {
				p.t.Fatalf("end %d: polls for ever", i)
			}
		}
		p.cut = true
		p.pass(p.detection())
		p.wantStates("cut", down)
		p.cut = false
		p.pass(p.detection() + 3*time.Second)
		p.wantStates("mended", up)
	}
}
