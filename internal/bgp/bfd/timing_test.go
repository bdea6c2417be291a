// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"math/rand/v2"
	"testing"
	"time"
)

// RFC 5880 §6.8.2: the slower of the one's transmit interval and the other's
// receive interval; below up, never faster than a second.
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
			part := p.drawPart()
			low, high = min(low, part), max(high, part)
		}
		if low < 0.75 || low > 0.76 || high > most || high < most-0.01 {
			t.Errorf("multiplier %d: %.3f to %.3f of the interval", multiplier, low, high)
		}
	}
}

// RFC 5880 §6.8.4: the peer's multiplier, and the slower of its transmit and our
// receive interval.
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
		p.handle(t, heard)
		if got := p.detectionTime(); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// A session that goes down doesn't go on at the pace that it had when up
// (RFC 5880 §6.8.3).
func TestSlowAfterDown(t *testing.T) {
	p := newUp(t, 3)
	p.pass(100 * ms)
	p.handle(t, said(down))
	p.one(t)
	if pace := p.due().Sub(p.now); pace != slow {
		t.Errorf("next packet after %s", pace)
	}
}

// A peer that asks for a quicker pace gets it without waiting for the next
// packet of the slow one (RFC 5880 §6.8.3).
func TestPeerShortensInterval(t *testing.T) {
	p := newUp(t, 3)
	slowly, quickly := said(up), said(up)
	slowly.requiredMinRx = time.Minute
	slowly.desiredMinTx = time.Minute
	p.handle(t, slowly)
	if sent := p.pass(10 * time.Second); len(sent) > 1 {
		t.Fatalf("sent %d packets to a peer that wants one a minute", len(sent))
	}
	p.handle(t, quickly)
	if sent := p.pass(0); len(sent) != 1 {
		t.Errorf("sent %+v, want a packet at once", sent)
	}
}
