// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"math/rand/v2"
	"testing"
	"time"
)

// RFC 5880 §6.8.2: the slower of what the one wants to send and the other to
// receive; below up, never faster than a second.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		own, peerRx, want time.Duration
		state             state
	}{
		{100 * ms, 50 * ms, 100 * ms, up},
		{100 * ms, 300 * ms, 300 * ms, up},
		{100 * ms, 50 * ms, time.Second, initial},
		{2 * time.Second, 50 * ms, 2 * time.Second, down},
		{100 * ms, 3 * time.Second, 3 * time.Second, down},
	} {
		p := newProbe(c.own, 3)
		p.pass(0)
		p.state = c.state
		p.intervals = p.wanted()
		p.remoteMinRx = c.peerRx
		if got := p.due().Sub(p.now); got != c.want {
			t.Errorf("%+v: next packet after %s", c, got)
		}
	}
}

// RFC 5880 §6.8.7: 75 to 100 percent, at most 90 with multiplier 1.
func TestJitter(t *testing.T) {
	for multiplier, most := range map[uint8]float64{1: 0.90, 2: 1, 3: 1, 255: 1} {
		p := newProbe(100*ms, multiplier)
		p.jitter = rand.Float64
		low, high := 2.0, 0.0
		for range 10_000 {
			part := p.shorten()
			low, high = min(low, part), max(high, part)
		}
		if low < 0.75 || low > 0.76 || high > most || high < most-0.01 {
			t.Errorf("multiplier %d: %.3f to %.3f of the interval", multiplier, low, high)
		}
	}
}

// RFC 5880 §6.8.4: the peer's multiplier, and the slower of what it sends and
// what we receive.
func TestDetectionTime(t *testing.T) {
	for _, c := range []struct {
		own, peerTx time.Duration
		multiplier  uint8
		want        time.Duration
	}{
		{100 * ms, 100 * ms, 3, 300 * ms},
		{100 * ms, 50 * ms, 3, 300 * ms},
		{100 * ms, 200 * ms, 5, time.Second},
		{100 * ms, 0, 1, 100 * ms},
	} {
		p := newProbe(c.own, 9)
		heard := said(down)
		heard.desiredMinTx, heard.multiplier = c.peerTx, c.multiplier
		p.hear(t, heard)
		if got := p.detectionTime(); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// RFC 5880 §6.8.3: a slower pace and a shorter detection time wait for the
// peer's answer; the opposite doesn't. The slower pace also waits for one more
// packet at the former one.
func TestChangeWhileUp(t *testing.T) {
	for name, c := range map[string]struct {
		to                        time.Duration
		pace, detection           time.Duration
		paceAfter, detectionAfter time.Duration
	}{
		"slower": {to: 200 * ms, pace: 100 * ms, detection: 600 * ms, paceAfter: 200 * ms, detectionAfter: 600 * ms},
		"faster": {to: 50 * ms, pace: 50 * ms, detection: 300 * ms, paceAfter: 50 * ms, detectionAfter: 150 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbe(100*ms, 3)
			p.comeUp(t)
			quick := said(up)
			quick.requiredMinRx, quick.desiredMinTx = 10*ms, 10*ms
			p.hear(t, quick)
			p.pass(0)
			peer := p.peer
			peer.Interval = c.to
			p.change(peer)
			if got := p.one(t); !got.poll || got.desiredMinTx != c.to || got.requiredMinRx != c.to {
				t.Errorf("said %+v, want a poll with the new intervals", got)
			}
			if pace, detection := p.due().Sub(p.now), p.detectionTime(); pace != c.pace || detection != c.detection {
				t.Errorf("until the answer: %s, %s, want %s, %s", pace, detection, c.pace, c.detection)
			}
			final := quick
			final.final = true
			p.hear(t, final)
			if sent := p.pass(c.pace); len(sent) != 1 || sent[0].poll {
				t.Errorf("then sent %+v, want one packet at the former pace, no more polls", sent)
			}
			if pace, detection := p.due().Sub(p.now), p.detectionTime(); pace != c.paceAfter || detection != c.detectionAfter {
				t.Errorf("after it: %s, %s, want %s, %s", pace, detection, c.paceAfter, c.detectionAfter)
			}
		})
	}
}

// News that the former pace did not make due leave one more packet at it to be
// sent: the poll may have overtaken what was sent before it.
func TestNewsBeforeSlowerPace(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.comeUp(t)
	p.pass(100 * ms)
	peer := p.peer
	peer.Interval = time.Second
	p.change(peer)
	p.one(t)
	final := said(up)
	final.final = true
	p.hear(t, final)
	peer.Multiplier = 5
	p.change(peer)
	p.one(t)
	if pace := p.due().Sub(p.now); pace != 100*ms {
		t.Errorf("after the news: %s, want 100ms", pace)
	}
	if sent := p.pass(time.Second); len(sent) != 1 {
		t.Errorf("sent %+v, want one packet at the former pace", sent)
	}
}

// A session that goes down doesn't go on at the pace that it had when up
// (RFC 5880 §6.8.3).
func TestSlowOnceDown(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.comeUp(t)
	p.pass(100 * ms)
	p.hear(t, said(down))
	p.one(t)
	if pace := p.due().Sub(p.now); pace != slow {
		t.Errorf("next packet after %s", pace)
	}
}

// A peer that asks for a quicker pace gets it without waiting for the next
// packet of the slow one (RFC 5880 §6.8.3).
func TestPeerWantsMore(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.comeUp(t)
	slowly, quickly := said(up), said(up)
	slowly.requiredMinRx = time.Minute
	slowly.desiredMinTx = time.Minute
	p.hear(t, slowly)
	if sent := p.pass(10 * time.Second); len(sent) > 1 {
		t.Fatalf("sent %d packets to a peer that wants one a minute", len(sent))
	}
	p.hear(t, quickly)
	if sent := p.pass(0); len(sent) != 1 {
		t.Errorf("sent %+v, want a packet at once", sent)
	}
}

// RFC 5880 §6.8.3: a change during a poll sequence needs another one, which may
// begin only when the first answer can't be taken for its own.
func TestChangeDuringPoll(t *testing.T) {
	p := newProbe(100*ms, 3)
	p.comeUp(t)
	quick, final := said(up), said(up)
	quick.requiredMinRx = 10 * ms
	final.requiredMinRx, final.final = 10*ms, true
	p.hear(t, quick)
	p.pass(0)
	for _, interval := range []time.Duration{200 * ms, 300 * ms} {
		peer := p.peer
		peer.Interval = interval
		p.change(peer)
		p.pass(0)
	}
	p.hear(t, final)
	if got := p.intervals.tx; got != 100*ms {
		t.Errorf("the first answer, which may be to 200 ms, puts %s into force", got)
	}
	if sent := p.pass(100 * ms); len(sent) != 1 || sent[0].poll {
		t.Errorf("sent %+v, want no poll before a packet without F", sent)
	}
	p.hear(t, quick)
	if sent := p.pass(100 * ms); len(sent) != 1 || !sent[0].poll || sent[0].desiredMinTx != 300*ms {
		t.Errorf("sent %+v, want the second poll", sent)
	}
	p.hear(t, final)
	if got := p.intervals.tx; got != 300*ms {
		t.Errorf("the second answer puts %s into force, want 300ms", got)
	}
}
