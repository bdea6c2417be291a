// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// drawn returns the topology that a lab's function draws of its options.
func drawn[O any](t *testing.T, draw func(O) (Topology, error), o O) Topology {
	t.Helper()
	topology, err := draw(o)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func TestTopologiesAreValid(t *testing.T) {
	for name, topology := range map[string]Topology{
		"l2dsr":    drawn(t, ECMP, ECMPOptions{Forward: lb.L2DSR, Balancers: 3, Servers: 4}),
		"ipip":     drawn(t, ECMP, ECMPOptions{Forward: lb.IPIP, Balancers: 3, Servers: 4}),
		"gue":      drawn(t, ECMP, ECMPOptions{Forward: lb.GUE, Balancers: 3, Servers: 4}),
		"in vxlan": drawn(t, ECMP, ECMPOptions{Forward: lb.VXLAN, Balancers: 3, Servers: 4}),
		"geneve":   drawn(t, ECMP, ECMPOptions{Forward: lb.Geneve, Balancers: 3, Servers: 4}),
		"nat":      drawn(t, ECMP, ECMPOptions{Forward: lb.NAT, Balancers: 3, Servers: 4}),
		"least":    drawn(t, ECMP, ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 1}),
		"most":     drawn(t, ECMP, ECMPOptions{Forward: lb.L2DSR, Balancers: MaxBalancers, Servers: MaxServers}),
		"vlan":     VLAN(),
		"vxlan":    VXLAN(1500),
		"pods":     drawn(t, Pods, PodsOptions{Balancers: 3, Nodes: 2}),
		"host-gw":  drawn(t, Pods, PodsOptions{Balancers: 3, Nodes: 2, HostGateway: true}),
		"nodes":    drawn(t, Nodes, NodesOptions{Nodes: 3, Forward: lb.NAT}),
		"local":    drawn(t, Nodes, NodesOptions{Nodes: 2, Forward: lb.DSR, OwnPods: true}),
		"dsr":      drawn(t, Nodes, NodesOptions{Nodes: 3, Forward: lb.DSR}),
		"beyond":   drawn(t, Nodes, NodesOptions{Nodes: 3, Forward: lb.DSR, Beyond: true}),
		"all pods": drawn(t, Pods, PodsOptions{Balancers: MaxBalancers, Nodes: MaxServers}),
		"snat":     drawn(t, SNAT, SNATOptions{Router: FRR, Balancers: 3, Servers: 2}),
		"all snat": drawn(t, SNAT, SNATOptions{Router: BIRD, Balancers: MaxBalancers, Servers: 2}),
		"cloud":    drawn(t, Cloud, CloudOptions{Forward: lb.DSR, Balancers: 3, Servers: 2, Checked: []Role{Server}}),
		"in pods":  drawn(t, BalancerPods, BalancerPodsOptions{Nodes: 3, Second: 2, Servers: 2}),
		"all in":   drawn(t, BalancerPods, BalancerPodsOptions{Nodes: MaxBalancers - 1, Second: MaxBalancers - 1, Servers: 1}),
		"nat pods": drawn(t, BalancerPods, BalancerPodsOptions{Forward: lb.NAT, Nodes: 2, Second: 1, Servers: 2}),
		"plain":    plain(3),
		"nothing":  {},
	} {
		if err := topology.problems(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestECMPInvalidOptions(t *testing.T) {
	for _, o := range []ECMPOptions{
		{Balancers: 1, Servers: 1},
		{Forward: lb.L2DSR, Balancers: 0, Servers: 1},
		{Forward: lb.L2DSR, Balancers: 1, Servers: MaxServers + 1},
	} {
		if _, err := ECMP(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestAddressesAreAsDocumented(t *testing.T) {
	topology := drawn(t, ECMP, ECMPOptions{Forward: lb.L2DSR, Balancers: 3, Servers: 4})
	checkAddresses(t, topology, map[string]string{
		"client":  "10.0.1.2/24 fd00:1::2/64",
		"router":  "10.0.1.1/24 fd00:1::1/64 10.0.2.1/24 fd00:2::1/64",
		"lb3":     "10.0.2.13/24 fd00:2::13/64",
		"server4": "10.0.2.104/24 fd00:2::104/64",
	})
	pods := drawn(t, Pods, PodsOptions{Balancers: 3, Nodes: 12})
	checkAddresses(t, pods, map[string]string{
		"lb2":   "10.0.2.12/24 fd00:2::12/64 10.244.102.0/32 fd00:244:102::/128",
		"pod12": "10.244.12.2/24 fd00:244:12::2/64",
	})
	for _, s := range pods.Services {
		if s.Forward != lb.NAT || s.Backends[11].Port != map[uint16]uint16{80: 8080, 7: 7}[s.Port] {
			t.Errorf("%s: forward %s, backend %+v", s.Name, s.Forward, s.Backends[11])
		}
	}
	if got := topology.Services[1].String(); got != "tcp [fd00:10:1:1::1]:80" {
		t.Errorf("second service: %s", got)
	}
}

// checkAddresses compares the addresses of hosts' interfaces and overlays.
func checkAddresses(t *testing.T, topology Topology, want map[string]string) {
	t.Helper()
	for host, want := range want {
		var got []string
		h := topology.Host(host)
		for _, i := range h.Interfaces {
			for _, p := range i.Addresses {
				got = append(got, p.String())
			}
		}
		for _, o := range h.Overlays {
			for _, p := range o.Addresses {
				got = append(got, p.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", host, got, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "ecmp": true, "e2e-42": true, strings.Repeat("x", 32): true,
		"": false, "-a": false, "a-": false, "A": false, "a/b": false, "..": false, "a b": false,
		strings.Repeat("x", 33): false,
	} {
		if got := CheckName(name) == nil; got != ok {
			t.Errorf("%q: ok is %v, want %v", name, got, ok)
		}
	}
}
