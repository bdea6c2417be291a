// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

// An event that was queued before BFD was removed from the configuration has no
// effect.
func TestBFDDownAfterItsRemoval(t *testing.T) {
	p := &Keeper{downs: make(chan bfd.Event, 1)}
	p.BFDChanged(bfd.Event{Old: bgp.BFDUp, New: bgp.BFDDown})
	if len(p.downs) > 0 {
		t.Error("the session is ended")
	}
}
