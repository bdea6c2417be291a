// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"net"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/reflector"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// Names of devices that ratios are made of. A Fairlead device has the name of
// its forwarding mode.
const (
	noDevice        = "none"
	reflectorDevice = "reflector"
	l2dsrDevice     = "l2dsr"
	natDevice       = "nat"
	iptablesDevice  = "iptables"
	nftablesDevice  = "nftables"
)

// device is something that sends packets for a VIP to backends.
type device struct {
	name string
	role netlab.Role
	// remembers is set if the device keeps a record of every flow.
	remembers bool
	// start puts the device to work in its host of the lab, with which it goes; a
	// Fairlead device returns its data plane. Without a start, the sink stands
	// where the device would be.
	start func(ctx context.Context, lab *netlab.Lab) (*xdp.Plane, error)
}

func (d device) host() string { return "device-" + d.name }

// devices are all that can be measured here. The first one is no device: sender
// and sink alone.
func devices() []device {
	list := []device{
		{name: noDevice, role: netlab.Client},
		{name: reflectorDevice, role: netlab.Client, start: startReflector},
	}
	for _, mode := range xdp.Limits().Forwards {
		if mode == lb.DNAT {
			continue // servers here are not on nodes that would translate
		}
		list = append(list, fairlead(mode))
	}
	return append(list,
		device{name: iptablesDevice, role: netlab.Router, remembers: true, start: startIptables},
		device{name: nftablesDevice, role: netlab.Router, remembers: true, start: startNftables},
	)
}

func deviceNames(list []device) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.name
	}
	return names
}

func startReflector(_ context.Context, lab *netlab.Lab) (*xdp.Plane, error) {
	return nil, onDevice(lab, reflectorDevice, reflector.Attach)
}

// onDevice calls fn in the device's namespace with the index of its interface.
func onDevice(lab *netlab.Lab, name string, fn func(ifindex int) error) error {
	return lab.Do(device{name: name}.host(), func() error {
		dev, err := net.InterfaceByName(deviceInterface)
		if err != nil {
			return err
		}
		return fn(dev.Index)
	})
}
