// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/handover"
	"fairlead.io/fairlead/internal/dataplane/xdp/nexthop"
)

// handOver makes sure that packets can be handed over for the backends of a plan
// that XDP can't send to (package handover), before any is. A backend whose device
// has vanished is out of use until its next hop is known to be another; the others
// are none the worse.
func (p *Plane) handOver(pl plan) error {
	for i, hop := range pl.hops {
		if hop.Err != nil || !hop.Hop.Handover || pl.backends[i].Down {
			continue
		}
		err := p.handover.Attach(handover.Device{Index: hop.Hop.Index, MAC: hop.Hop.Source})
		if err != nil && !errors.Is(err, handover.ErrGone) {
			return err
		}
		if err == nil {
			continue
		}
		pl.hops[i] = nexthop.Result{Err: fmt.Errorf("interface %s is gone", hop.Hop.Interface)}
		if i < len(pl.ring) {
			pl.ring[i].Weight = 0
		}
	}
	return nil
}

// trimHandover detaches the programs from devices behind which no service has
// backends any more.
func (p *Plane) trimHandover() error {
	used := map[handover.Device]struct{}{}
	for _, s := range p.services {
		for i := range s.now.slots {
			one := &s.now.slots[i]
			if one.usable() && one.Flags&uint8(balancerBackendFlagBACKEND_HANDOVER) != 0 {
				used[handover.Device{Index: int(one.Ifindex), MAC: one.Source}] = struct{}{}
			}
		}
	}
	return p.handover.Retain(slices.Collect(maps.Keys(used)))
}
