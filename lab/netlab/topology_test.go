// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

func ecmp(t *testing.T, forward lb.Forward, balancers, servers int) Topology {
	t.Helper()
	topology, err := ECMP(ECMPOptions{Forward: forward, Balancers: balancers, Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func pods(t *testing.T, balancers, nodes int) Topology {
	t.Helper()
	topology, err := Pods(PodsOptions{Balancers: balancers, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func workers(t *testing.T, forward lb.Forward, nodes int, own bool) Topology {
	t.Helper()
	topology, err := Nodes(NodesOptions{Nodes: nodes, Forward: forward, OwnPods: own})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func beyond(t *testing.T, nodes int) Topology {
	t.Helper()
	topology, err := Nodes(NodesOptions{Nodes: nodes, Forward: lb.DSR, Beyond: true})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func snat(t *testing.T, router RouterKind, balancers int) Topology {
	t.Helper()
	topology, err := SNAT(SNATOptions{Router: router, Balancers: balancers, Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func TestTopologiesAreValid(t *testing.T) {
	for name, topology := range map[string]Topology{
		"l2dsr":    ecmp(t, lb.L2DSR, 3, 4),
		"ipip":     ecmp(t, lb.IPIP, 3, 4),
		"gue":      ecmp(t, lb.GUE, 3, 4),
		"in vxlan": ecmp(t, lb.VXLAN, 3, 4),
		"geneve":   ecmp(t, lb.Geneve, 3, 4),
		"nat":      ecmp(t, lb.NAT, 3, 4),
		"least":    ecmp(t, lb.L2DSR, 1, 1),
		"most":     ecmp(t, lb.L2DSR, MaxBalancers, MaxServers),
		"vlan":     VLAN(),
		"vxlan":    VXLAN(1500),
		"pods":     pods(t, 3, 2),
		"nodes":    workers(t, lb.NAT, 3, false),
		"local":    workers(t, lb.DSR, 2, true),
		"dsr":      workers(t, lb.DSR, 3, false),
		"beyond":   beyond(t, 3),
		"all pods": pods(t, MaxBalancers, MaxServers),
		"snat":     snat(t, FRR, 3),
		"all snat": snat(t, BIRD, MaxBalancers),
		"plain":    plain(3),
		"nothing":  {},
	} {
		if err := topology.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestECMPRefusesWhatItCannotDraw(t *testing.T) {
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

func TestECMPAddressesAreAsDocumented(t *testing.T) {
	topology := ecmp(t, lb.L2DSR, 3, 4)
	for host, want := range map[string]string{
		"client":  "10.0.1.2/24 fd00:1::2/64",
		"router":  "10.0.1.1/24 fd00:1::1/64 10.0.2.1/24 fd00:2::1/64",
		"lb3":     "10.0.2.13/24 fd00:2::13/64",
		"server4": "10.0.2.104/24 fd00:2::104/64",
	} {
		var got []string
		for _, i := range topology.Host(host).Interfaces {
			for _, p := range i.Addresses {
				got = append(got, p.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", host, got, want)
		}
	}
	if got := topology.Services[1].String(); got != "tcp [fd00:10:1:1::1]:80" {
		t.Errorf("second service: %s", got)
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(*Topology){
		"host server1: name used twice":                  func(tp *Topology) { tp.Hosts[3].Name = "server1" },
		"bad name \"Router\"":                            func(tp *Topology) { tp.Hosts[1].Name = "Router" },
		"unknown role \"king\"":                          func(tp *Topology) { tp.Hosts[0].Role = "king" },
		"interface eth0: 0 links, want 1":                func(tp *Topology) { tp.Links = tp.Links[1:] },
		"interface eth0: 2 links, want 1":                func(tp *Topology) { tp.Links = append(tp.Links, tp.Links[0]) },
		"mtu 100 is not in 1280 to 9000":                 func(tp *Topology) { tp.Links[0].MTU = 100 },
		"no interface client/eth7":                       func(tp *Topology) { tp.Links[0].A.Interface = "eth7" },
		"interface lo: name used twice":                  func(tp *Topology) { tp.Hosts[0].Interfaces[0].Name = "lo" },
		"interface \"abcdefghijklmnop\"":                 func(tp *Topology) { tp.Hosts[0].Interfaces[0].Name = "abcdefghijklmnop" },
		"vlan 4095 is above 4094":                        func(tp *Topology) { tp.Hosts[0].Interfaces[0].VLAN = 4095 },
		"geneve segment 16777216 is above 16777215":      func(tp *Topology) { tp.Hosts[0].Interfaces[0].Geneve = 1 << 24 },
		"the end of a geneve segment has an address":     func(tp *Topology) { tp.Hosts[0].Interfaces[0].Geneve, tp.Hosts[0].Interfaces[0].Addresses = 1, nil },
		"has the same MAC address":                       func(tp *Topology) { tp.Hosts[2].Interfaces[0].MAC = tp.Hosts[3].Interfaces[0].MAC },
		"route 10.0.0.1/8: not a network":                func(tp *Topology) { tp.Hosts[0].Routes[0].Destination = netip.MustParsePrefix("10.0.0.1/8") },
		"gateway fd00:1::1 is not of its address family": func(tp *Topology) { tp.Hosts[0].Routes[0].Gateways = tp.Hosts[0].Routes[1].Gateways },
		"route ::/0: no gateway":                         func(tp *Topology) { tp.Hosts[0].Routes[1].Gateways = nil },
		"sysctl \"kernel.panic\"":                        func(tp *Topology) { tp.Hosts[0].Sysctls = map[string]string{"kernel.panic": "1"} },
		"sysctl \"net.core/../../kernel.panic\"":         func(tp *Topology) { tp.Hosts[0].Sysctls = map[string]string{"net.core/../../kernel.panic": "1"} },
		"file \"../x\"":                                  func(tp *Topology) { tp.Hosts[0].Files = map[string]string{"../x": ""} },
		"process nginx: name used twice":                 func(tp *Topology) { p := &tp.Hosts[2]; p.Processes = append(p.Processes, nginx()) },
		"process empty: no program":                      func(tp *Topology) { tp.Hosts[0].Processes = []Process{{Name: "empty"}} },
		"route 0.0.0.0/0: no interface eth9":             func(tp *Topology) { tp.Hosts[0].Routes[0].Device = "eth9" },
		"route 10.1.1.1/32: 2 gateways on one interface": func(tp *Topology) { tp.Hosts[1].Routes[0].Device = "eth0" },
		"neighbour 10.0.0.1: no interface eth9": func(tp *Topology) {
			tp.Hosts[0].Neighbours = []Neighbour{{"eth9", netip.MustParseAddr("10.0.0.1"), lb.MAC{2}}}
		},
		"overlay vx0: identifier 16777216 is not in 1 to 16777215": func(tp *Topology) {
			tp.Hosts[0].Overlays = []Overlay{{Name: "vx0", ID: 1 << 24, Local: netip.MustParseAddr("10.0.0.1"), MAC: lb.MAC{2}}}
		},
		"overlay eth0: name used twice": func(tp *Topology) { tp.Hosts[0].Overlays = []Overlay{{Name: "eth0"}} },
		"a tunnel end point or a MAC address is missing": func(tp *Topology) {
			tp.Hosts[0].Overlays = []Overlay{{Name: "vx0", ID: 1}}
		},
		"probe of 10.1.1.1:80: no host missing":             func(tp *Topology) { tp.Probes[0].From = "missing" },
		"the port of a switch has neither address nor vlan": func(tp *Topology) { tp.Host("switch").Interfaces[0].VLAN = 1 },
	} {
		topology := plain(2)
		spoil(&topology)
		if err := topology.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
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
