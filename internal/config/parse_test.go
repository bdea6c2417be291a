// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

func limits() dataplane.Limits {
	return dataplane.Limits{
		Forwards:    []lb.Forward{lb.L2DSR, lb.IPIP},
		OtherFamily: []lb.Forward{lb.L2DSR, lb.IPIP},
		Segments:    []lb.SegmentType{lb.SegmentVLAN},
		MaxBackends: 32767,
		Affinities:  []lb.Affinity{lb.AffinityClient, lb.AffinityQUIC},
		Properties:  []string{"sources", "limits", "affinityTimeout", "idleTimeout", "tracking", "unavailable"},
		NextHopMACs: true,
	}
}

// equateAddresses compares addresses by value: they have unexported fields.
func equateAddresses() cmp.Option {
	return cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})
}

func TestParseDesignExample(t *testing.T) {
	data, err := os.ReadFile("testdata/design.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Parse("f", string(data), limits())
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Node:      config.Node{Name: "lb1", Interfaces: []string{"eth0"}, NAT: config.NAT{Ports: config.Ports{First: 1024, Last: 32767}}, DrainTimeout: 30 * time.Second},
		Dataplane: config.Dataplane{Kind: config.KindAuto, XDPMode: config.XDPAuto, Services: 1 << 13, Backends: 1 << 17, Flows: 1 << 18, NATSessions: 1 << 18},
		Observe:   config.Observe{Listen: netip.MustParseAddrPort("127.0.0.1:9571")},
		BGP: &bgp.Config{
			Local: bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("10.0.0.106")}, ShutdownDelay: 500 * time.Millisecond,
			Peers: []bgp.Peer{{Address: netip.MustParseAddr("10.0.0.109"), ASN: 65021, BFD: &bgp.DefaultBFD, HoldTime: 3 * time.Second, RestartTime: time.Minute}},
		},
		Services: []lb.Service{{
			Name: "web",
			VIP: lb.VIP{
				Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP,
				Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 100},
			},
			Forward: lb.L2DSR, Affinity: lb.AffinityFlow, MinHealthy: 1,
			Sources: lb.Sources{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, Deny: []netip.Prefix{}},
			Health: &lb.HealthCheck{
				Type: lb.HealthHTTP, Path: "/healthz", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
			},
			Backends: []lb.Backend{{Address: netip.MustParseAddr("10.0.0.21"), Port: 80, Weight: 1}},
		}},
	}
	if diff := cmp.Diff(want, got, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseDefaults(t *testing.T) {
	const input = `
node: {interfaces: [eth0, eth1]}
dataplane: {hashSeed: 18446744073709551615}
bgp: {asn: 1, routerID: 10.0.0.1, peers: [{address: "::1", asn: 4294967294}]}
services:
- name: dns
  address: fd00:10::1
  port: 53
  protocol: udp
  segment: {type: none}
  forward: ipip
  affinity: client
  unavailable: reject
  health: {type: http}
  backends:
  - address: 10.0.0.21
    mac: 02:00:00:00:00:21
    segment: {type: none}
  - {address: fd00::22, weight: 0, segment: {type: vlan, id: 7}}
- {name: none, address: 10.1.1.1, port: 80, forward: l2dsr, backends: [], sources: {}}
`
	got, err := config.Parse("f", input, limits())
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Node:      config.Node{Name: strings.ToLower(host), Interfaces: []string{"eth0", "eth1"}, NAT: config.NAT{Ports: config.Ports{First: 1024, Last: 32767}}, DrainTimeout: 30 * time.Second},
		Dataplane: config.Dataplane{Kind: config.KindAuto, XDPMode: config.XDPAuto, HashSeed: 1<<64 - 1, Services: 1 << 13, Backends: 1 << 17, Flows: 1 << 18, NATSessions: 1 << 18},
		Observe:   config.Observe{Listen: netip.MustParseAddrPort("127.0.0.1:9571")},
		BGP: &bgp.Config{
			Local: bgp.Local{ASN: 1, RouterID: netip.MustParseAddr("10.0.0.1")}, ShutdownDelay: 500 * time.Millisecond,
			Peers: []bgp.Peer{{Address: netip.MustParseAddr("::1"), ASN: 4294967294, HoldTime: 90 * time.Second, RestartTime: time.Minute}},
		},
		Services: []lb.Service{
			{
				Name:     "dns",
				VIP:      lb.VIP{Address: netip.MustParseAddr("fd00:10::1"), Port: 53, Protocol: lb.UDP},
				Forward:  lb.IPIP,
				Affinity: lb.AffinityClient, Unavailable: lb.Reject, MinHealthy: 1, Learn: time.Second,
				Health: &lb.HealthCheck{
					Type: lb.HealthHTTP, Path: "/", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
				},
				Backends: []lb.Backend{
					{
						Address: netip.MustParseAddr("10.0.0.21"), Port: 53, Weight: 1,
						MAC: lb.MAC{2, 0, 0, 0, 0, 0x21}, Segment: lb.Segment{Type: lb.SegmentNone},
					},
					{Address: netip.MustParseAddr("fd00::22"), Port: 53, Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 7}},
				},
			},
			{
				Name:    "none",
				VIP:     lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP},
				Forward: lb.L2DSR, MinHealthy: 1, Backends: []lb.Backend{},
			},
		},
	}
	if diff := cmp.Diff(want, got, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := got.Backends(); n != 2 {
		t.Errorf("have %d backends, want 2", n)
	}
}

// check compares the errors of a file with the lines that are wanted.
func check(t *testing.T, input, want string) {
	t.Helper()
	_, err := config.Parse("f", input, limits())
	checkErrors(t, err, input, want)
}

func checkErrors(t *testing.T, err error, input, want string) {
	t.Helper()
	got := "no error"
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got:\n%s\nof\n%s", diff, input)
	}
}

// spoil replaces a part of a good input.
func spoil(t *testing.T, good, old, with string) string {
	t.Helper()
	if !strings.Contains(good, old) {
		t.Fatalf("%q is not in the good input", old)
	}
	return strings.Replace(good, old, with, 1)
}

// TestServiceErrors spoils one thing of a good service.
func TestServiceErrors(t *testing.T) {
	const good = "{name: web, address: 10.1.1.1, port: 80, forward: l2dsr, backends: [{address: 10.0.0.21}]}"
	tests := map[string]struct{ old, new, want string }{
		"unknown field":      {"port", "prot", "f:3:36: services[0].prot: unknown field: did you mean \"port\"?"},
		"far field":          {"port", "flavour", "f:3:5: services[0].port: missing\nf:3:36: services[0].flavour: unknown field: want one of name, address, port, protocol, segment, forward, affinity, affinityTimeout, firewallMark, tracking, learn, quic, limits, idleTimeout, unavailable, minHealthy, scheduler, health, sources, backends"},
		"upper case":         {"forward", "Forward", "f:3:46: services[0].Forward: unknown field: did you mean \"forward\"?"},
		"duplicate key":      {"port: 80", "port: 80, port: 81", "f:3:46: services[0].port: already given on line 3"},
		"no name":            {"name: web, ", "", "f:3:5: services[0].name: missing"},
		"number as name":     {"web", "12", "f:3:12: services[0].name: have 12: want text (quote it if it is text)"},
		"empty name":         {"web", "''", "f:3:12: services[0].name: empty: want text"},
		"null name":          {"web", "~", "f:3:12: services[0].name: no value: want text"},
		"list as name":       {"web", "[a]", "f:3:12: services[0].name: have a list: want text"},
		"address":            {"10.1.1.1", "10.1.1.256", "f:3:26: services[0].address: bad address \"10.1.1.256\": want an IPv4 or IPv6 address"},
		"address as number":  {"10.1.1.1", "10", "f:3:26: services[0].address: have 10: want an IPv4 or IPv6 address (quote it if it is text)"},
		"multicast":          {"10.1.1.1", "224.0.0.1", "f:3:26: services[0].address: 224.0.0.1 is a multicast address: want a unicast address"},
		"port 0":             {"80", "0", "f:3:42: services[0].port: 0 is out of range: want 1 to 65535"},
		"port below 0":       {"80", "-1", "f:3:42: services[0].port: -1 is out of range: want 1 to 65535"},
		"port 65536":         {"80", "65536", "f:3:42: services[0].port: 65536 is out of range: want 1 to 65535"},
		"huge port":          {"80", "99999999999999999999", "f:3:42: services[0].port: 99999999999999999999 is out of range: want 1 to 65535"},
		"tiny port":          {"80", "-99999999999999999999", "f:3:42: services[0].port: -99999999999999999999 is out of range: want 1 to 65535"},
		"port as text":       {"80", "'80'", "f:3:42: services[0].port: have the text \"80\": want a whole number"},
		"port as fraction":   {"80", "80.0", "f:3:42: services[0].port: have 80.0: want a whole number"},
		"port as octal":      {"80", "080", "f:3:42: services[0].port: have 080, which may be read as octal: want 80"},
		"port in hex":        {"80", "0x50", "f:3:42: services[0].port: have 0x50: want a whole number"},
		"port as word":       {"80", "http", "f:3:42: services[0].port: have the text \"http\": want a whole number"},
		"port as mapping":    {"80", "{a: b}", "f:3:42: services[0].port: have a mapping: want a whole number"},
		"protocol":           {"port: 80", "port: 80, protocol: sctp", "f:3:56: services[0].protocol: unknown protocol \"sctp\": want one of tcp, udp"},
		"forward":            {"l2dsr", "dr", "f:3:55: services[0].forward: unknown forwarding mode \"dr\": want one of l2dsr, ipip, gue, vxlan, geneve, nat, dsr"},
		"mode not served":    {"l2dsr", "gue", "f:3:55: services[0].forward: forwarding mode gue can't be served by this data plane (it serves l2dsr, ipip)"},
		"affinity time":      {"port: 80", "port: 80, affinity: client, affinityTimeout: 3h", "no error"},
		"affinity of flows":  {"port: 80", "port: 80, affinityTimeout: 3h", "f:3:63: services[0].affinityTimeout: only with affinity client, this service has flow"},
		"affinity too short": {"port: 80", "port: 80, affinity: client, affinityTimeout: 0.5s", "f:3:81: services[0].affinityTimeout: 500ms is out of range: want 1s to 168h0m0s"},
		"affinity":           {"port: 80", "port: 80, affinity: ip", "f:3:56: services[0].affinity: unknown affinity \"ip\": want one of flow, client, quic"},
		"unavailable":        {"port: 80", "port: 80, unavailable: reset", "f:3:59: services[0].unavailable: unknown policy \"reset\": want one of drop, reject"},
		"minHealthy":         {"port: 80", "port: 80, minHealthy: 2", "f:3:58: services[0].minHealthy: 2 is more than the service's 1 backends"},
		"segment not served": {"port: 80", "port: 80, segment: {type: vxlan, id: 1}", "f:3:62: services[0].segment.type: segment type vxlan can't be served by this data plane (it serves vlan)"},
		"vlan":               {"port: 80", "port: 80, segment: {type: vlan, id: 4095}", "f:3:72: services[0].segment.id: 4095 is out of range: want 1 to 4094"},
		"vlan without id":    {"port: 80", "port: 80, segment: {type: vlan}", "f:3:55: services[0].segment.id: 0 is out of range: want 1 to 4094"},
		"id without vlan":    {"port: 80", "port: 80, segment: {type: none, id: 1}", "f:3:72: services[0].segment.id: 1 names no segment: want none without type vlan, vxlan or geneve"},
		"segment":            {"port: 80", "port: 80, segment: blue", "f:3:55: services[0].segment: have the text \"blue\": want a mapping"},

		"no backends":       {", backends: [{address: 10.0.0.21}]", "", "f:3:5: services[0].backends: missing"},
		"null backends":     {"[{address: 10.0.0.21}]", "~", "f:3:72: services[0].backends: no value: want a list"},
		"backend as text":   {"{address: 10.0.0.21}", "10.0.0.21", "f:3:73: services[0].backends[0]: have the text \"10.0.0.21\": want a mapping"},
		"weight":            {"0.21", "0.21, weight: 300", "f:3:102: services[0].backends[0].weight: 300 is out of range: want 0 to 256"},
		"backend port":      {"0.21", "0.21, port: 8080", "f:3:100: services[0].backends[0].port: 8080 differs from the service's port 80, which l2dsr doesn't translate"},
		"backend port 0":    {"0.21", "0.21, port: 0", "f:3:100: services[0].backends[0].port: 0 is out of range: want 1 to 65535"},
		"mac":               {"0.21", "0.21, mac: 01:00:00:00:00:01", "f:3:99: services[0].backends[0].mac: bad MAC address \"01:00:00:00:00:01\": not a unicast address"},
		"VIP as backend":    {"10.0.0.21", "10.1.1.1", "f:3:83: services[0].backends[0].address: 10.1.1.1 is the VIP itself"},
		"duplicate backend": {"}]", "}, {address: 10.0.0.21}]", "f:3:105: services[0].backends[1].address: 10.0.0.21:80 is also backends[0]"},

		"limits":        {"port: 80", "port: 80, limits: {newFlows: 1000, newFlowsPerSource: 10}", "no error"},
		"limit of 0":    {"port: 80", "port: 80, limits: {newFlows: 0}", "f:3:65: services[0].limits.newFlows: 0 is out of range: want 1 to 10000000"},
		"unknown limit": {"port: 80", "port: 80, limits: {newFlow: 1}", "f:3:55: services[0].limits.newFlow: unknown field: did you mean \"newFlows\"?"},

		"quic over tcp":  {"port: 80", "port: 80, affinity: quic, quic: {serverIDLength: 1, nonceLength: 4}", "f:3:56: services[0].affinity: quic runs over udp, this service is tcp"},
		"quic":           {"port: 80", "port: 80, protocol: udp, affinity: quic, quic: {configID: 6, serverIDLength: 15, nonceLength: 4}", "no error"},
		"quic of what":   {"port: 80", "port: 80, protocol: udp, affinity: quic", "f:3:5: services[0].quic: missing: affinity quic needs the format of connection IDs"},
		"quic nonce":     {"port: 80", "port: 80, protocol: udp, affinity: quic, quic: {serverIDLength: 1, nonceLength: 19}", "f:3:116: services[0].quic.nonceLength: 19 is out of range: want 4 to 18"},
		"server id":      {"0.21", "0.21, serverID: 0g", "f:3:104: services[0].backends[0].serverID: bad server id \"0g\": want two hexadecimal digits for each of 1 to 15 bytes"},
		"idle server id": {"0.21", "0.21, serverID: '01'", "f:3:104: services[0].backends[0].serverID: only with affinity quic, this service has flow"},

		"everybody":       {"port: 80", "port: 80, sources: {allow: [10.0.0.0/8, 0.0.0.0/0]}", "no error"},
		"some":            {"port: 80", "port: 80, sources: {allow: [10.0.0.0/8], deny: [10.1.0.0/16]}", "no error"},
		"no source":       {"port: 80", "port: 80, sources: {deny: [0.0.0.0/0], allow: []}", "f:3:82: services[0].sources.allow: empty list: omit it to allow all sources, deny 0.0.0.0/0 or ::/0 to allow none"},
		"everybody in v6": {"port: 80", "port: 80, sources: {allow: ['::/0']}", "f:3:64: services[0].sources.allow[0]: prefix ::/0 is not of the same family as the VIP 10.1.1.1"},
		"twice":           {"port: 80", "port: 80, sources: {deny: [10.0.0.0/8, 10.0.0.0/8]}", "f:3:75: services[0].sources.deny[1]: 10.0.0.0/8 is also sources.deny[0]"},
		"bad prefix":      {"port: 80", "port: 80, sources: {deny: [10.0.0.1]}", "f:3:63: services[0].sources.deny[0]: bad prefix \"10.0.0.1\": want for example 10.0.0.0/8 or fd00::/8"},
		"long prefix":     {"port: 80", "port: 80, sources: {allow: [0.0.0.0/0, 10.0.0.1/8]}", "f:3:75: services[0].sources.allow[1]: prefix 10.0.0.1/8 has host bits set: write 10.0.0.0/8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, "node: {name: lb1, interfaces: [eth0]}\nservices:\n  - "+spoil(t, good, test.old, test.new)+"\n", test.want)
		})
	}
}

func TestFileErrors(t *testing.T) {
	node := "node: {name: lb1, interfaces: [eth0]}\n"
	web := "{name: web, address: 10.1.1.1, port: 80, forward: l2dsr, backends: []}\n"
	tests := map[string]struct{ input, want string }{
		"empty":           {"", "f:1:1: the file has no configuration"},
		"comment":         {"# nothing\n", "f:1:1: the file has no configuration"},
		"null":            {"---\n~\n", "f:1:1: the file has no configuration"},
		"list":            {"- a\n", "f:1:1: have a list: want a mapping"},
		"text":            {"hello\n", "f:1:1: have the text \"hello\": want a mapping"},
		"nothing given":   {"{}\n", "f:1:1: node: missing\nf:1:1: services: missing"},
		"no services":     {node, "f:1:1: services: missing"},
		"null services":   {node + "services:\n", "f:2:11: services: no value: want a list"},
		"mapping":         {node + "services: {web: {}}\n", "f:2:11: services: have a mapping: want a list"},
		"unknown section": {node + "services: []\nservice: []\n", "f:3:1: service: unknown field: did you mean \"services\"?"},
		"number as key":   {node + "services: []\n1: 2\n", "f:3:1: 1: unknown field: want one of node, dataplane, observe, bgp, routes, apiServer, services"},
		"one document":    {"---\n" + node + "services: []\n---\n", "no error"},
		"two documents":   {node + "services: []\n---\n" + node, "f:4:1: second document: want only one in a file"},
		"byte order mark": {"\ufeff" + node + "services: []\nx: 1", "f:3:1: x: unknown field: want one of node, dataplane, observe, bgp, routes, apiServer, services"},
		"line ends":       {strings.ReplaceAll(node+"services: []\nx: 1\n", "\n", "\r\n"), "f:3:1: x: unknown field: want one of node, dataplane, observe, bgp, routes, apiServer, services"},
		"tab":             {"node:\n\tname: lb1\n", "f:2:1: syntax: tabs can't indent: use spaces"},
		"open list":       {node + "services: [\n", "f:2:11: syntax: sequence end token ']' not found"},
		"indentation":     {"node:\n  name: lb1\n interfaces: []\n", "f:3:2: syntax: value is not allowed in this context"},
		"open quote":      {"node: {name: 'lb1}\n", "f:1:14: syntax: could not find end character of single-quoted text"},
		"not UTF-8":       {node + "# caf\xe9\n", "f:2:6: not UTF-8 text"},
		"anchor and alias": {"node: &n {name: lb1, interfaces: [eth0]}\nservices: *n\n",
			"f:1:7: anchors, aliases and merge keys are not supported: repeat the value\n" +
				"f:2:11: anchors, aliases and merge keys are not supported: repeat the value"},
		"tag":       {node + "services: !!seq []\n", "f:2:11: tags are not supported"},
		"directive": {"%YAML 1.2\n---\n" + node + "services: []\n", "f:1:1: directives are not supported"},
		"too large": {strings.Repeat("#", 8<<20+1), "f:1:1: 8388609 bytes are too many: want at most 8388608, " +
			"or services that are listed one by one, each from a line with a dash"},
		"too deep": {node + "services: " + strings.Repeat("[", 100), "f:2:26: nested too deeply: want at most 16 levels"},
		"too deep in a block": {strings.Repeat("- ", 1e6),
			"f:1:33: nested too deeply: want at most 16 levels"},
		"too wide":  {wide(1e5), "f:65:1: too many fields in one mapping: want at most 64"},
		"too empty": {"a: |\n  b\n" + strings.Repeat(" \n", 1e6), "f:1003:1: too many empty lines: want at most 1000 in a row"},

		"duplicate keys": {node + "services: []\nservices: []\nnode: 3\n",
			"f:3:1: services: already given on line 2\nf:4:1: node: already given on line 1"},
		"duplicate name": {node + "services:\n  - " + web + "  - " + strings.Replace(web, "80", "81", 1),
			"f:4:12: services[1].name: \"web\" is already the name of the service on line 3"},
		"duplicate VIP": {node + "services:\n  - " + web + "  - " + strings.Replace(web, "web", "www", 1),
			"f:4:26: services[1].address: tcp 10.1.1.1:80 is already the VIP of service \"web\" on line 3"},
		"duplicate VIP without segment": {node + "services:\n  - " + web + "  - " + strings.Replace(web, "web", "www, segment: {type: none}", 1),
			"f:4:49: services[1].address: tcp 10.1.1.1:80 is already the VIP of service \"web\" on line 3"},
		"same VIP in a segment": {node + "services:\n  - " + web + "  - " + strings.Replace(web, "web", "www, segment: {type: vlan, id: 5}", 1),
			"no error"},
		"all at once": {`node:
  name: LB1
  interfaces: [eth0, eth0, a/b, 7]
dataplane: {kind: dpdk, xdpMode: fast, hashSeed: -1, filterPods: 1}
bgp:
  asn: 0
  routerID: fd00::1
  peers:
    - {address: 10.0.0.1, asn: 1, bfd: yes, holdTime: 1s}
    - {address: 10.0.0.1, asn: 1, holdTime: 3500ms}
    - {address: ff02::1, holdTim: 3s}
services:
  - name: web
    address: 10.1.1
    port: 80
    forward: nat
    backends:
      - {address: 10.0.0.21, weight: 300}
      - {address: 10.0.0.21, port: 81, wieght: 3}
`, `f:2:9: node.name: bad node name "LB1": want a to z, 0 to 9, dots and hyphens, beginning and ending with a letter or digit
f:3:22: node.interfaces[1]: eth0 is given twice
f:3:28: node.interfaces[2]: bad interface name "a/b": want at most 15 characters without slash, colon and space
f:3:33: node.interfaces[3]: have 7: want text (quote it if it is text)
f:4:19: dataplane.kind: unknown word "dpdk": want one of auto, xdp, ipvs
f:4:34: dataplane.xdpMode: unknown word "fast": want one of auto, native, generic
f:4:50: dataplane.hashSeed: -1 is out of range: want 0 to 18446744073709551615
f:4:66: dataplane.filterPods: have 1: want true or false
f:6:8: bgp.asn: 0 is out of range: want 1 to 4294967294
f:7:13: bgp.routerID: bad router id fd00::1: want an IPv4 address that is not 0.0.0.0
f:9:40: bgp.peers[0].bfd: have the text "yes": want true, false or a mapping
f:9:55: bgp.peers[0].holdTime: 1s is out of range: want 3s to 18h12m15s, or 0s for ever
f:10:17: bgp.peers[1].address: 10.0.0.1 is the address of another peer
f:10:45: bgp.peers[1].holdTime: 3.5s is not a whole number of seconds
f:11:7: bgp.peers[2].asn: missing
f:11:17: bgp.peers[2].address: ff02::1 is a multicast address: want a unicast address
f:11:26: bgp.peers[2].holdTim: unknown field: did you mean "holdTime"?
f:14:14: services[0].address: bad address "10.1.1": want an IPv4 or IPv6 address
f:16:14: services[0].forward: forwarding mode nat can't be served by this data plane (it serves l2dsr, ipip)
f:18:38: services[0].backends[0].weight: 300 is out of range: want 0 to 256
f:19:40: services[0].backends[1].wieght: unknown field: did you mean "weight"?`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { check(t, test.input, test.want) })
	}
}

// wide returns a mapping of n fields.
func wide(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	return b.String()
}

func TestLimits(t *testing.T) {
	l := limits()
	l.MaxBackends = 1
	const input = `node: {name: lb1, interfaces: [eth0]}
services:
  - {name: a, address: 10.1.1.1, port: 80, forward: ipip, backends: [{address: 10.0.0.1}, {address: 10.0.0.2}]}
  - {name: b, address: 10.1.1.2, port: 80, forward: ipip, backends: []}
dataplane: {services: 1}
`
	const want = `f:3:3: services: 2 services are too many: dataplane.services is 1
f:3:69: services[0].backends: 2 backends are too many: this data plane serves at most 1`
	_, err := config.Parse("f", input, l)
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Services of one firewall mark that the data plane can't join have an error.
func TestMixedFirewallMark(t *testing.T) {
	l := limits()
	l.Properties = append(l.Properties, "firewallMark")
	const input = `node: {name: lb1, interfaces: [eth0]}
services:
  - {name: a, address: 10.1.1.1, port: 80, forward: ipip, firewallMark: 5, backends: [{address: 10.0.0.1}]}
  - {name: b, address: 10.1.1.1, port: 81, forward: ipip, firewallMark: 5, backends: [{address: 10.0.0.1}]}
  - {name: c, address: 10.1.1.1, port: 82, forward: l2dsr, firewallMark: 5, backends: [{address: 10.0.0.1}]}
  - {name: d, address: 10.1.1.1, port: 83, forward: l2dsr, firewallMark: 6, backends: [{address: 10.0.0.1}]}
`
	const want = "f:5:74: services[2].firewallMark: firewall mark 5: services with one firewall mark need equal settings: " +
		"forward is l2dsr of tcp 10.1.1.1:82 and ipip of tcp 10.1.1.1:80"
	_, err := config.Parse("f", input, l)
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The valid fields of services depend on the kind of data plane, which may follow them in the
// file: with auto one of all kinds has to serve each service, or the errors of each are reported.
func TestKinds(t *testing.T) {
	joined := dataplane.Limits{Kind: "xdp", Forwards: []lb.Forward{lb.NAT, lb.DSR}, Properties: []string{"sources"}, MaxBackends: 9, Or: []dataplane.Limits{{
		Kind: "ipvs", Forwards: []lb.Forward{lb.NAT}, Schedulers: []lb.Scheduler{lb.SchedulerLC}, MaxBackends: 9,
	}}}
	const input = `node: {name: lb1, interfaces: [eth0]}
services:
  - {name: plain, address: 10.1.1.1, port: 80, forward: nat, backends: []}
  - {name: dsr, address: 10.1.1.2, port: 80, forward: dsr, backends: []}
  - {name: lc, address: 10.1.1.3, port: 80, forward: nat, scheduler: lc, backends: []}
`
	const both = "  - {name: both, address: 10.1.1.4, port: 80, forward: dsr, scheduler: lc, backends: []}\n"
	for name, test := range map[string]struct{ input, want string }{
		"none": {input, "<nil>"},
		"auto": {input + "dataplane: {kind: auto}\n", "<nil>"},
		"auto, refused by both": {input + both,
			"f:6:56: services[3].forward: forwarding mode dsr can't be served by data plane ipvs (it serves nat): use nat, or data plane xdp\n" +
				"f:6:72: services[3].scheduler: scheduler lc can't be served by data plane xdp (it serves maglev)"},
		"xdp": {input + "dataplane: {kind: xdp}\n",
			"f:5:70: services[2].scheduler: scheduler lc can't be served by data plane xdp (it serves maglev)"},
		"ipvs": {input + "dataplane: {kind: ipvs}\n",
			"f:4:55: services[1].forward: forwarding mode dsr can't be served by data plane ipvs (it serves nat): use nat, or data plane xdp"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parse := range []func(string, string) (*config.Config, error){
				func(name, text string) (*config.Config, error) { return config.Parse(name, text, joined) }, config.Parser(joined),
			} {
				_, err := parse("f", test.input)
				if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
		})
	}
}
