// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
)

func TestReflector(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const input = `
reflector:
  name: rr1
  asn: 65021
  routerID: 10.0.2.2
  clusterID: 10.0.2.200
  port: 1179
  restartWait: 5s
listen: [10.0.2.2, "fd00:2::2"]
clients:
  - {prefix: 10.0.2.0/24, maxClients: 16, ttlSecurity: 1, holdTime: 3s, restartTime: 30s, bfd: true, passwordFile: secret}
  - {prefix: "fd00:2::/64", asn: 65022, unauthenticated: true, accept: [10.1.7.0/24]}
routers:
  - {address: 10.0.2.1, asn: 65021, holdTime: 9s}
accept:
  - 10.1.0.0/16
  - {prefix: "fd00:10::/32", shortest: 64}
nextHops: [10.0.2.0/24, "fd00:2::/64"]
allow: {communities: ["65021:100", "65021:1:2"], localPreference: 200, med: 10, linkBandwidth: 10G}
observe: {listen: "127.0.0.1:9999"}
`
	got, err := config.ParseReflector(filepath.Join(dir, "f"), input)
	if err != nil {
		t.Fatal(err)
	}
	address, prefix := netip.MustParseAddr, netip.MustParsePrefix
	want := bgp.Reflection{
		Local:     bgp.Local{ASN: 65021, RouterID: address("10.0.2.2")},
		ClusterID: address("10.0.2.200"),
		Listen:    []netip.Addr{address("10.0.2.2"), address("fd00:2::2")},
		Port:      1179,
		Clients: []bgp.Range{
			{
				Prefix: prefix("10.0.2.0/24"), MaxClients: 16, Peer: bgp.Peer{
					ASN: 65021, TTLSecurity: 1, HoldTime: 3 * time.Second, RestartTime: 30 * time.Second,
					BFD: &bgp.DefaultBFD, Password: bgp.Secret{File: filepath.Join(dir, "secret")},
				},
			},
			{
				Prefix: prefix("fd00:2::/64"), MaxClients: bgp.DefaultMaxClients,
				Accept: []bgp.Acceptance{{Prefix: prefix("10.1.7.0/24"), Shortest: 32}},
				Peer:   bgp.Peer{ASN: 65022, HoldTime: 90 * time.Second, RestartTime: time.Minute},
			},
		},
		Routers:  []bgp.Peer{{Address: address("10.0.2.1"), ASN: 65021, HoldTime: 9 * time.Second, RestartTime: time.Minute}},
		Accept:   []bgp.Acceptance{{Prefix: prefix("10.1.0.0/16"), Shortest: 32}, {Prefix: prefix("fd00:10::/32"), Shortest: 64}},
		NextHops: []netip.Prefix{prefix("10.0.2.0/24"), prefix("fd00:2::/64")},
		Allowed: bgp.Attributes{
			Communities: []bgp.Community{65021<<16 | 100}, LargeCommunities: []bgp.LargeCommunity{{65021, 1, 2}},
			LocalPreference: new(uint32(200)), MED: new(uint32(10)), LinkBandwidth: 1.25e9,
		},
		RestartWait: 5 * time.Second,
	}
	if diff := cmp.Diff(want, got.BGP, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Name != "rr1" || got.Observe.Listen != netip.MustParseAddrPort("127.0.0.1:9999") || len(got.Warnings) > 0 {
		t.Errorf("have %+v", got)
	}
}

// Optional fields have defaults.
func TestReflectorDefaults(t *testing.T) {
	got, err := config.ParseReflector("f", goodReflector)
	if err != nil {
		t.Fatal(err)
	}
	b := got.BGP
	if b.ClusterID != b.RouterID || b.ListenPort() != bgp.Port || b.RestartWait != bgp.DefaultRestartWait ||
		len(b.Listen) != 2 || got.Observe.Listen != netip.MustParseAddrPort("127.0.0.1:9572") {
		t.Errorf("have %+v", got)
	}
}

const goodReflector = `reflector: {name: rr1, asn: 65021, routerID: 10.0.2.2}
clients: [{prefix: 10.0.2.0/24, unauthenticated: true}]
routers: [{address: 10.0.2.1, asn: 65021}]
accept: [10.1.0.0/16]
`

// TestReflectorErrors spoils one thing of a good file.
func TestReflectorErrors(t *testing.T) {
	t.Setenv("BGP_PASSWORD", "s3cret")
	for name, test := range map[string]struct{ old, new, want string }{
		"nothing spoilt":   {"", "", "no error"},
		"no section":       {"reflector: {name: rr1, asn: 65021, routerID: 10.0.2.2}", "", "f:2:1: reflector: missing"},
		"unknown field":    {"accept", "acept", `f:4:1: acept: unknown field: did you mean "accept"?`},
		"AS 0":             {"asn: 65021, routerID", "asn: 0, routerID", "f:1:29: reflector.asn: 0 is out of range: want 1 to 4294967294"},
		"router id":        {"routerID: 10.0.2.2", `routerID: "fd00::1"`, "f:1:46: reflector.routerID: bad router id fd00::1: want an IPv4 address that is not 0.0.0.0"},
		"restart wait":     {"name: rr1", "name: rr1, restartWait: 6m", "f:1:37: reflector.restartWait: 6m0s is out of range: want 0s to 5m0s"},
		"no clients":       {"[{prefix: 10.0.2.0/24, unauthenticated: true}]", "[]", "f:2:10: clients: no range of clients: want at least one"},
		"host bits":        {"10.0.2.0/24", "10.0.2.1/24", "f:2:20: clients[0].prefix: prefix 10.0.2.1/24 has host bits set: write 10.0.2.0/24"},
		"max clients":      {"10.0.2.0/24", "10.0.2.0/24, maxClients: 4097", "f:2:45: clients[0].maxClients: 4097 is out of range: want 1 to 4096"},
		"hold time":        {"10.0.2.0/24", "10.0.2.0/24, holdTime: 1s", "f:2:43: clients[0].holdTime: 1s is out of range: want 3s to 18h12m15s, or 0s for ever"},
		"ranges overlap":   {"true}]", "true}, {prefix: 10.0.2.128/25, unauthenticated: true}]", "f:2:66: clients[1].prefix: 10.0.2.128/25 and 10.0.2.0/24 of clients[0] overlap"},
		"no routers":       {"[{address: 10.0.2.1, asn: 65021}]", "[]", "f:3:10: routers: no peer: want at least one"},
		"everything":       {"10.1.0.0/16", "0.0.0.0/0", "f:4:10: accept[0]: 0.0.0.0/0 would allow clients to announce any address"},
		"shortest":         {"10.1.0.0/16", "{prefix: 10.1.0.0/16, shortest: 8}", "f:4:42: accept[0].shortest: 8 is out of range: want 16 to 32"},
		"listen twice":     {"accept", "listen: [10.0.2.2, 10.0.2.2]\naccept", "f:4:20: listen[1]: 10.0.2.2 is given twice"},
		"listen multicast": {"accept", "listen: [224.0.0.1]\naccept", "f:4:10: listen[0]: 224.0.0.1 is not a listen address: want a unicast address without zone"},
		"next hops":        {"accept", "nextHops: []\naccept", "f:4:11: nextHops: no prefix: want at least one"},
		"no password": {", unauthenticated: true", "", "f:2:11: clients[0]: no password: every host with one of these addresses could announce routes: " +
			"want passwordFile, passwordEnv or unauthenticated: true"},
		"password, unauthenticated": {"10.0.2.0/24", "10.0.2.0/24, passwordEnv: BGP_PASSWORD", "f:2:77: clients[0].unauthenticated: not with a password"},
		"allow":                     {"accept", "allow: {communities: [\"65535:0\"]}\naccept", "f:4:23: allow.communities[0]: 65535:0 is GRACEFUL_SHUTDOWN, which is set while the node drains"},
		"accept of a range":         {"10.0.2.0/24", "10.0.2.0/24, accept: []", "f:2:41: clients[0].accept: no prefix: want at least one"},
		"two passwords": {"10.0.2.0/24, unauthenticated: true", "10.0.2.0/24, passwordFile: a, passwordEnv: B", "f:2:47: clients[0].passwordFile: stat a: no such file or directory\n" +
			"f:2:63: clients[0].passwordEnv: password: environment variable B has 0 bytes: want 1 to 80\n" +
			"f:2:63: clients[0].passwordEnv: not with passwordFile: want one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			input := spoil(t, goodReflector, test.old, test.new)
			_, err := config.ParseReflector("f", input)
			checkErrors(t, err, input, test.want)
		})
	}
}

// A file is a reflector's if it has that section, and a node's if not.
func TestParseEither(t *testing.T) {
	e, err := config.ParseEither("f", goodReflector, limits())
	if err != nil || e.Reflector == nil || e.Node != nil {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = config.ParseEither("f", withPeer(""), limits())
	if err != nil || e.Node == nil || e.Reflector != nil {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err = config.ParseEither("f", "\t", limits()); err == nil {
		t.Error("no error")
	}
}
