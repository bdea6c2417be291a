// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

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

// What was still to be told of BFD when a configuration took it away is no reason
// to do anything.
func TestFallOfBFDThatIsNoLongerConfigured(t *testing.T) {
	n := &Neighbour{falls: make(chan fall, 1)}
	n.Watched(bfd.Event{Old: bgp.BFDUp, New: bgp.BFDDown})
	if len(n.falls) > 0 {
		t.Error("it ends the session")
	}
}
