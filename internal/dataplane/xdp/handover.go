// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"maps"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// handoverDevice is a device at which packets are handed over. If it is a bridge, so
// they are at its ports: there answers are as their senders made them, while the
// kernel may put fragments together for its filters before the bridge has them
// (net.bridge.bridge-nf-call-iptables), which then are too long to be sent.
type handoverDevice struct {
	program.Device
	ports []nexthop.Port
}

// deviceGoneError is returned if a device of a plan has vanished.
type deviceGoneError struct{ program.Device }

func (deviceGoneError) Error() string { return "device is gone" }

// handoverDevices returns the devices of backends that XDP can't send to (package
// handover).
func handoverDevices(pl *plan, r Resolver) []handoverDevice {
	var devices []handoverDevice
	for i, hop := range pl.hops {
		device := program.Device{Index: hop.Hop.Index, MAC: hop.Hop.Source}
		known := func(d handoverDevice) bool { return d.Device == device }
		if hop.Err == nil && hop.Hop.Handover && !pl.backends[i].Down && !slices.ContainsFunc(devices, known) {
			devices = append(devices, handoverDevice{device, r.Ports(device.Index)})
		}
	}
	return devices
}

// handOver attaches the programs to devices before packets are sent there.
func handOver(h *program.Handover, devices []handoverDevice) error {
	for _, d := range devices {
		if err := h.Attach(d.Device); errors.Is(err, program.ErrGone) {
			return deviceGoneError{d.Device}
		} else if err != nil {
			return err
		}
		for _, port := range d.ports {
			if err := h.Attach(program.Device(port)); err != nil && !errors.Is(err, program.ErrGone) {
				return err
			}
		}
	}
	return nil
}

// usedDevices are the devices behind which services have backends, with bridges' ports.
func usedDevices(services map[lb.VIP]*service, r Resolver) []program.Device {
	used := map[program.Device]struct{}{}
	for _, s := range services {
		for i := range s.now.slots {
			one := &s.now.slots[i]
			if one.usable() && one.has(table.BalancerBackendFlagBACKEND_HANDOVER) {
				used[program.Device{Index: int(one.Ifindex), MAC: one.Source}] = struct{}{}
			}
		}
	}
	for _, device := range slices.Collect(maps.Keys(used)) {
		for _, port := range r.Ports(device.Index) {
			used[program.Device(port)] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(used))
}
