// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

func TestBFDDownOfTheSession(t *testing.T) {
	p := &Keeper{}
	p.Peer.BFD = &bgp.BFD{Interval: 100 * time.Millisecond, Multiplier: 3}
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
		if got := p.concerns(bfdDown{up: test.up, down: test.down}, since); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// An event that was queued before BFD was removed from the configuration has no
// effect.
func TestBFDDownAfterItsRemoval(t *testing.T) {
	p := &Keeper{downs: make(chan bfdDown, 1)}
	p.BFDChanged(bfd.Event{Old: bgp.BFDUp, New: bgp.BFDDown})
	if len(p.downs) > 0 {
		t.Error("the session is ended")
	}
}
