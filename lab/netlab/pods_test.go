// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// The overlay of the lab "pods", without agents: balancers reach pods, which no
// host of the network below knows.
func TestPodsAreReachedThroughTheOverlay(t *testing.T) {
	labs := newLabs(t)
	topology := drawn(t, Pods, PodsOptions{Balancers: 1, Nodes: 2})
	topology.Probes, topology.Host("lb1").Processes = nil, nil
	for _, service := range topology.Services {
		for n, b := range service.Backends {
			topology.Probes = append(topology.Probes, Probe{
				From: "lb1", Protocol: service.Protocol, Address: netip.AddrPortFrom(b.Address, b.Port), Answers: []string{podName(n + 1)},
			})
		}
	}
	lab := bringUp(t, labs, topology)
	for _, probe := range topology.Probes {
		probe.From = "client"
		if name, err := lab.query(t.Context(), probe); err == nil {
			t.Errorf("%s at %s answers %q outside of the overlay", probe.Protocol, probe.Address, name)
		}
	}
}

func TestPodsAddressesAreAsDocumented(t *testing.T) {
	topology := drawn(t, Pods, PodsOptions{Balancers: 3, Nodes: 12})
	if got := topology.Host("lb2").Overlays[0].Addresses; got[0].String() != "10.244.102.0/32" || got[1].String() != "fd00:244:102::/128" {
		t.Errorf("lb2: %v", got)
	}
	if got := topology.Host("pod12").Interfaces[0].Addresses; got[0].String() != "10.244.12.2/24" || got[1].String() != "fd00:244:12::2/64" {
		t.Errorf("pod12: %v", got)
	}
	for _, s := range topology.Services {
		if s.Forward != lb.NAT || s.Backends[11].Port != map[uint16]uint16{80: 8080, 7: 7}[s.Port] {
			t.Errorf("%s: forward %s, backend %+v", s.Name, s.Forward, s.Backends[11])
		}
	}
}
