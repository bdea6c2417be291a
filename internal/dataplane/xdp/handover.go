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
	gone := map[handover.Device]bool{}
	for i, hop := range pl.hops {
		if hop.Err != nil || !hop.Hop.Handover || pl.backends[i].Down {
			continue
		}
		device := handover.Device{Index: hop.Hop.Index, MAC: hop.Hop.Source}
		if _, known := gone[device]; !known {
			err := p.attachHandover(device)
			if err != nil && !errors.Is(err, handover.ErrGone) {
				return err
			}
			gone[device] = err != nil
		}
		if !gone[device] {
			continue
		}
		pl.hops[i] = nexthop.Result{Err: fmt.Errorf("interface %s is gone", hop.Hop.Interface)}
		if i < len(pl.ring) {
			pl.ring[i].Weight = 0
		}
	}
	return nil
}

// attachHandover puts the programs at a device and, if it is a bridge, at its
// ports: there answers are as their senders made them, while the kernel may put
// fragments together for its filters before the bridge has them
// (net.bridge.bridge-nf-call-iptables), which then are too long to be sent.
func (p *Plane) attachHandover(device handover.Device) error {
	if err := p.handover.Attach(device); err != nil {
		return err
	}
	for _, port := range p.resolver.Ports(device.Index) {
		err := p.handover.Attach(handover.Device(port))
		if err != nil && !errors.Is(err, handover.ErrGone) {
			return err
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
			if one.usable() && one.has(balancerBackendFlagBACKEND_HANDOVER) {
				used[handover.Device{Index: int(one.Ifindex), MAC: one.Source}] = struct{}{}
			}
		}
	}
	for _, device := range slices.Collect(maps.Keys(used)) {
		for _, port := range p.resolver.Ports(device.Index) {
			used[handover.Device(port)] = struct{}{}
		}
	}
	return p.handover.Retain(slices.Collect(maps.Keys(used)))
}
