// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// SetUnusable makes a backend unusable for the given reason, from the next
// Update on; an empty reason makes it usable again. Like a next hop that
// changes, it should be followed by MarkStale of the services that it concerns.
func (d *DataPlane) SetUnusable(id lb.BackendID, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unusable[id] = reason
}

// MarkStale announces vip on the channel of Stale.
func (d *DataPlane) MarkStale(vip lb.VIP) { d.stale.Add(vip) }

// Calls returns the calls since the last call of Calls, in their order, for
// example "update tcp 10.1.1.1:80", with ": failed" behind those that the test
// let fail.
func (d *DataPlane) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// Dump prints the programmed services by VIP, a line each, and indented below
// it a line for each of its backends by ID:
//
//	tcp 10.1.1.1:80 web l2dsr flow ring 251
//	  10.0.0.21:80 weight 1 entries 251
//	  10.0.0.22:80 weight 1 out: no route
func (d *DataPlane) Dump() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out strings.Builder
	for _, vip := range slices.SortedFunc(maps.Keys(d.services), lb.VIP.Compare) {
		d.services[vip].dump(&out)
	}
	return out.String()
}

func (s *service) dump(out *strings.Builder) {
	fmt.Fprintf(out, "%s %s %s %s ring %d\n", s.VIP, s.Name, s.Forward, s.Affinity, s.programmed.RingSize)
	weights := map[lb.BackendID]int{}
	for _, b := range s.Backends {
		weights[b.ID()] = b.Weight
	}
	byID := func(a, b dataplane.BackendState) int {
		return a.ID.Compare(b.ID)
	}
	for _, b := range slices.SortedFunc(slices.Values(s.programmed.Backends), byID) {
		use := fmt.Sprintf("entries %d", b.RingEntries)
		if !b.InUse {
			use = "out: " + b.Reason
		}
		fmt.Fprintf(out, "  %s weight %d %s\n", b.ID, weights[b.ID], use)
	}
}
