// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

func TestBackoff(t *testing.T) {
	var b backoff
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		want *= time.Millisecond
		if got := b.next(0); got > want || got <= want*3/4 {
			t.Errorf("%s, want %s or up to a quarter less", got, want)
		}
	}
	if got := b.next(lasting - 1); got <= maxPause*3/4 {
		t.Errorf("%s after a session that didn't last", got)
	}
	if got := b.next(lasting); got > minPause {
		t.Errorf("%s after one that did", got)
	}
}

func TestFallsOfBFDThatConcernTheSession(t *testing.T) {
	n := &Neighbour{peer: bgp.Peer{BFD: &bgp.BFD{Interval: 100 * time.Millisecond, Multiplier: 3}}}
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
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
		if got := n.concerns(fall{up: test.up, down: test.down}, since); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
