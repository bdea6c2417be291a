// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// A balancer that joins others sends their flows where they do, although it reaches its backends one
// after another. Once it has had a packet, or some time has passed, changes move no flow any more.
func TestStart(t *testing.T) {
	for name, svc := range historyServices() {
		if svc.Tracking != lb.TrackingMinimal {
			continue
		}
		first, next := dataplanetest.Opening, dataplanetest.Open
		if svc.Learn > 0 {
			first, next = dataplanetest.Datagram, dataplanetest.Datagram
		}
		for variant, test := range map[string]struct {
			between  func(p *peers)
			unstable bool
		}{
			"no packet": {func(*peers) {}, false},
			"a packet":  {func(p *peers) { p.send(p.all[0], 0, first) }, true},
			"later":     {func(p *peers) { p.must(p.all[0].Pass(startTime)) }, true},
		} {
			t.Run(name+"/"+variant, func(t *testing.T) {
				others := single(t, svc, 60, 3, 0, 1, 2)
				others.begin(first)
				joins := single(t, svc, 60, 3)
				joins.all[0].plane.startTime = startTime
				joins.present = others.present
				for i := range joins.backends {
					joins.backends[i].Usable = i == 2
				}
				joins.must(joins.all[0].plane.Delete(t.Context(), svc.VIP)) // it was there before
				joins.update(joins.all[0])
				test.between(joins)
				for i := range joins.backends {
					joins.backends[i].Usable = true
					joins.update(joins.all[0])
				}
				state, err := joins.all[0].State()
				joins.must(err)
				if unstable := state.Unstable > 0; unstable != test.unstable {
					t.Errorf("%d entries are unstable", state.Unstable)
				}
				moved := map[int]netip.AddrPort{}
				for i, home := range others.homes {
					if at := joins.send(joins.all[0], i, next); at != home {
						moved[i] = at
					}
				}
				if !test.unstable && len(moved) > 0 {
					t.Errorf("flows moved: %v", moved)
				}
			})
		}
	}
}
