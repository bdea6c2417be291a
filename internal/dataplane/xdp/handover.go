// SPDX-License-Identifier: Apache-2.0

package xdp

import "slices"

// handovers are the devices behind which the version has backends that XDP can't
// send to (package handover), by index and in order.
func (v *version) handovers() []int {
	var devices []int
	for i := range v.slots {
		one := &v.slots[i]
		if one.usable() && one.Flags&uint8(balancerBackendFlagBACKEND_HANDOVER) != 0 {
			devices = append(devices, int(one.Ifindex))
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// handOver makes sure that packets for a version can be handed over, before any
// is.
func (p *Plane) handOver(next *version) error {
	for _, device := range next.handovers() {
		if err := p.handover.Attach(device); err != nil {
			return err
		}
	}
	return nil
}

// trimHandover detaches the programs from devices behind which no service has
// backends any more.
func (p *Plane) trimHandover() error {
	var devices []int
	for _, s := range p.services {
		devices = append(devices, s.now.handovers()...)
	}
	slices.Sort(devices)
	return p.handover.Retain(slices.Compact(devices))
}
