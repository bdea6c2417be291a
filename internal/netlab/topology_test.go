// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

func ecmp(t *testing.T, forward lb.Forward, balancers, servers int) Topology {
	t.Helper()
	topology, err := ECMP(ECMPOptions{Fairlead: "/proc/self/exe", Forward: forward, Balancers: balancers, Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func pods(t *testing.T, balancers, nodes int) Topology {
	t.Helper()
	topology, err := Pods(PodsOptions{Fairlead: "/proc/self/exe", Balancers: balancers, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func workers(t *testing.T, forward lb.Forward, nodes int, own bool) Topology {
	t.Helper()
	topology, err := Nodes(NodesOptions{Fairlead: "/proc/self/exe", Nodes: nodes, Forward: forward, OwnPods: own})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func beyond(t *testing.T, nodes int) Topology {
	t.Helper()
	topology, err := Nodes(NodesOptions{Fairlead: "/proc/self/exe", Nodes: nodes, Forward: lb.DNAT, Beyond: true})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func snat(t *testing.T, router RouterKind, balancers int) Topology {
	t.Helper()
	topology, err := SNAT(SNATOptions{Fairlead: "/proc/self/exe", Router: router, Balancers: balancers, Servers: 2})
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
		"vlan":     VLAN("/proc/self/exe"),
		"vxlan":    VXLAN("/proc/self/exe", 1500),
		"pods":     pods(t, 3, 2),
		"nodes":    workers(t, lb.NAT, 3, false),
		"local":    workers(t, lb.DNAT, 2, true),
		"dnat":     workers(t, lb.DNAT, 3, false),
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
		"probe of 10.1.1.1:80: no host nobody":              func(tp *Topology) { tp.Probes[0].From = "nobody" },
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

func TestAgentSettings(t *testing.T) {
	const want = `node:
  name: lb1
  interfaces: [eth0]
  drainTimeout: 0s
dataplane:
  kind: xdp
  xdpMode: auto
services:
  - name: web6-red
    address: "fd00:10:1:1::1"
    port: 80
    protocol: tcp
    segment: {type: vlan, id: 100}
    forward: l2dsr
    backends:
      - {address: "fd00:2::101", port: 80, weight: 1, mac: "02:00:00:64:64:01", segment: {type: vlan, id: 100}}
      - {address: "fd00:2::102", port: 80, weight: 1, mac: "02:00:00:64:64:02", segment: {type: vlan, id: 100}}
`
	if got := (AgentSettings{Node: "lb1", Services: VLAN("fairlead").Services[1:2]}).YAML(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAgentSettingsOfEveryField(t *testing.T) {
	const want = `  - name: h3
    address: "10.1.1.1"
    port: 443
    protocol: udp
    forward: ipip
    affinity: quic
    quic: {configID: 1, serverIDLength: 1, nonceLength: 4}
    limits:
      newFlows: 10
      newFlowsPerSource: 2
    sources:
      allow: ["10.0.0.0/8", "11.0.0.0/8"]
      deny: ["10.1.0.0/16"]
    backends:
      - {address: "10.0.2.101", port: 443, weight: 1, serverID: "0a"}
`
	service := lb.Service{
		Name:    "h3",
		VIP:     lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 443, Protocol: lb.UDP},
		Forward: lb.IPIP, Affinity: lb.AffinityQUIC, QUIC: &lb.QUIC{ConfigID: 1, ServerIDLength: 1, NonceLength: 4},
		Limits: lb.FlowLimits{NewFlows: 10, NewFlowsPerSource: 2},
		Sources: lb.Sources{
			Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("11.0.0.0/8")},
			Deny:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		},
		Backends: []lb.Backend{{Address: netip.MustParseAddr("10.0.2.101"), Port: 443, Weight: 1, ServerID: "\x0a"}},
	}
	if _, got, _ := strings.Cut(AgentSettings{Node: "lb1", Services: []lb.Service{service}}.YAML(), "services:\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAgentSettingsOfSegments(t *testing.T) {
	const want = `node:
  name: lb1
  interfaces: [eth0]
  drainTimeout: 0s
  tunnelEnds: ["10.0.2.11", "fd00:2::11"]
dataplane:
  kind: xdp
  xdpMode: auto
services:
  - name: web6-blue
    address: "fd00:10:1:1::1"
    port: 80
    protocol: tcp
    segment: {type: vxlan, id: 5002}
    forward: vxlan
    backends:
      - {address: "fd00:3::101", port: 80, weight: 1, tunnelEnd: "fd00:2::103", mac: "02:01:13:8a:64:01"}
      - {address: "fd00:3::102", port: 80, weight: 1, tunnelEnd: "fd00:2::104", mac: "02:01:13:8a:64:02"}
`
	topology := VXLAN("fairlead", 0)
	if got := topology.Host("lb1").Agent.With(topology.Services[5:6]).YAML(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The bgp section says all that a configuration has.
func TestAgentSettingsOfBGP(t *testing.T) {
	const want = `bgp:
  asn: 65021
  routerID: 10.0.2.11
  shutdownDelay: 500ms
  peers:
    - {address: "10.0.2.1", asn: 65000, holdTime: 3s, restartTime: 1m0s, bfd: {interval: 100ms, multiplier: 3}, passwordFile: 'key'}
  announce:
    - {prefixes: ["10.1.0.0/16"], aggregate: true, nextHop4: "10.0.2.9", communities: ["65021:100", "65021:1:2"], localPreference: 200, med: 10, prepend: 2, linkBandwidth: 8000}
`
	topology, err := ECMP(ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 1, Router: FRR})
	if err != nil {
		t.Fatal(err)
	}
	agent := topology.Host("lb1").Agent.With(nil)
	preference, med := uint32(200), uint32(10)
	agent.BGP.Peers[0].Password.File = "key"
	agent.BGP.Policies = []bgp.Policy{{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Aggregate: true, NextHop4: netip.MustParseAddr("10.0.2.9"),
		Attributes: bgp.Attributes{
			Communities: []bgp.Community{65021<<16 | 100}, LargeCommunities: []bgp.LargeCommunity{{65021, 1, 2}},
			LocalPreference: &preference, MED: &med, Prepend: 2, LinkBandwidth: 1000,
		},
	}}
	_, got, _ := strings.Cut(agent.YAML(), "  xdpMode: auto\n")
	if got != want+"services:\n" {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
