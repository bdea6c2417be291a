// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
)

// withBGP is a file whose line 2 is the section.
func withBGP(section string) string {
	return "node: {name: lb1, interfaces: [eth0]}\nbgp: " + section + "\nservices: []\n"
}

// withPeer has one peer, an external one, with more fields.
func withPeer(fields string) string {
	return withBGP("{asn: 65021, routerID: 10.0.0.1, peers: [{address: 10.0.2.1, asn: 65000, " + fields + "}]}")
}

// withPolicies has a list of policies.
func withPolicies(list string) string {
	return withBGP("{asn: 65021, routerID: 10.0.0.1, announce: " + list + ", peers: [{address: 10.0.2.1, asn: 65000}]}")
}

func TestBGP(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAIRLEAD_TEST_PASSWORD", "s3cret")
	const input = `
node: {name: lb1, interfaces: [eth0]}
bgp:
  asn: 65021
  routerID: 10.0.0.1
  shutdownDelay: 2s
  peers:
    - {address: 10.0.2.1, asn: 65000, bfd: true, holdTime: 3s, passwordFile: secret, multihop: 3, port: 1179, localAddress: 10.0.2.11}
    - {address: "fd00:2::1", asn: 65000, bfd: {interval: 50ms}, restartTime: 0s, passwordEnv: FAIRLEAD_TEST_PASSWORD, ttlSecurity: 1}
    - {address: 127.0.0.1, asn: 65021, bfd: false, passive: true, holdTime: 0s}
    - {address: 10.0.2.3, asn: 65021, bfd: {multihop: true}}
    - {address: 10.0.2.4, asn: 65021, bfd: {multihop: false}}
  announce:
    - prefixes: [10.1.1.0/24, "fd00:10::/32"]
      aggregate: true
      nextHop4: fd00:2::11
      nextHop6: fd00:2::12
      communities: ["65021:200", "65021:1:2", "65021:100"]
      localPreference: 200
      med: 0
      prepend: 2
      linkBandwidth: 10G
    - {prefixes: [10.1.0.0/16], linkBandwidth: 2500000000}
    - {prefixes: [10.1.0.0/16], vlan: 100, nextHop4: 10.0.3.11}
services: []
`
	got, err := config.Parse(filepath.Join(dir, "f"), input, limits())
	if err != nil {
		t.Fatal(err)
	}
	preference, med := uint32(200), uint32(0)
	want := &bgp.Config{
		Local:         bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("10.0.0.1")},
		ShutdownDelay: 2 * time.Second,
		Peers: []bgp.Peer{
			{
				Address: netip.MustParseAddr("10.0.2.1"), ASN: 65000, Port: 1179, LocalAddress: netip.MustParseAddr("10.0.2.11"), Multihop: 3,
				HoldTime: 3 * time.Second, RestartTime: time.Minute, BFD: &bgp.DefaultBFD, Password: bgp.Secret{File: filepath.Join(dir, "secret")},
			},
			{
				Address: netip.MustParseAddr("fd00:2::1"), ASN: 65000, TTLSecurity: 1, HoldTime: 90 * time.Second,
				BFD: &bgp.BFD{Interval: 50 * time.Millisecond, Multiplier: 3}, Password: bgp.Secret{Env: "FAIRLEAD_TEST_PASSWORD"},
			},
			{Address: netip.MustParseAddr("127.0.0.1"), ASN: 65021, Passive: true, RestartTime: time.Minute},
			{
				Address: netip.MustParseAddr("10.0.2.3"), ASN: 65021, HoldTime: 90 * time.Second, RestartTime: time.Minute,
				BFD: &bgp.BFD{Interval: 100 * time.Millisecond, Multiplier: 3, Path: bgp.Multihop},
			},
			{
				Address: netip.MustParseAddr("10.0.2.4"), ASN: 65021, HoldTime: 90 * time.Second, RestartTime: time.Minute,
				BFD: &bgp.BFD{Interval: 100 * time.Millisecond, Multiplier: 3, Path: bgp.SingleHop},
			},
		},
		Policies: []bgp.Policy{
			{
				Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:10::/32")},
				Aggregate: true, NextHop4: netip.MustParseAddr("fd00:2::11"), NextHop6: netip.MustParseAddr("fd00:2::12"),
				Attributes: bgp.Attributes{
					Communities: []bgp.Community{65021<<16 | 100, 65021<<16 | 200}, LargeCommunities: []bgp.LargeCommunity{{65021, 1, 2}},
					LocalPreference: &preference, MED: &med, Prepend: 2, LinkBandwidth: 1.25e9,
				},
			},
			{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Attributes: bgp.Attributes{LinkBandwidth: 312.5e6}},
			{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, VLAN: 100, NextHop4: netip.MustParseAddr("10.0.3.11")},
		},
	}
	if diff := cmp.Diff(want, got.BGP, equateAddresses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(got.Warnings) > 0 {
		t.Errorf("warnings %v", got.Warnings)
	}
}

// checkAt wants one error, where a mark stands for the last time in line 2; none
// without a mark.
func checkAt(t *testing.T, input, mark, want string) {
	t.Helper()
	if mark == "" {
		check(t, input, "no error")
		return
	}
	_, after, _ := strings.Cut(input, "\n")
	check(t, input, fmt.Sprintf("f:2:%d: %s", strings.LastIndex(after, mark)+1, want))
}

func TestPeerErrors(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_LONG", strings.Repeat("x", 81))
	for name, test := range map[string]struct{ fields, mark, want string }{
		"none":               {"", "", ""},
		"multihop 1":         {"multihop: 1", "1", "multihop: 1 is out of range: want 2 to 255"},
		"TTL security":       {"ttlSecurity: 255", "255", "ttlSecurity: 255 is out of range: want 1 to 254"},
		"both":               {"multihop: 2, ttlSecurity: 2", "2", "ttlSecurity: not with multihop, which already limits the number of hops"},
		"hold time":          {"holdTime: 2s", "2s", "holdTime: 2s is out of range: want 3s to 18h12m15s, or 0s for ever"},
		"restart time":       {"restartTime: 1h9m", "1h9m", "restartTime: 1h9m0s is out of range: want 1s to 1h8m15s, or 0s for not at all"},
		"half a second":      {"restartTime: 500ms", "500ms", "restartTime: 500ms is not a whole number of seconds"},
		"local address":      {`localAddress: "fd00::1"`, `"fd00::1"`, "localAddress: fd00::1 is not of the same family as the peer's address 10.0.2.1"},
		"link-local":         {`localAddress: "fe80::1"`, `"fe80::1"`, "localAddress: fe80::1 is a link-local address: want an address without zone"},
		"port of a caller":   {"passive: true, port: 180", "180", "port: not with passive: the peer connects, not this node"},
		"BFD as text":        {"bfd: yes", "yes", `bfd: have the text "yes": want true, false or a mapping`},
		"BFD interval":       {"bfd: {interval: 5ms}", "5ms", "bfd.interval: 5ms is out of range: want 10ms to 1m0s"},
		"BFD multiplier":     {"bfd: {multiplier: 256}", "256", "bfd.multiplier: 256 is out of range: want 1 to 255"},
		"BFD path":           {"bfd: {multihop: 2}", "2", "bfd.multihop: have 2: want true or false"},
		"BFD field":          {"bfd: {intervall: 5ms}", "intervall", `bfd.intervall: unknown field: did you mean "interval"?`},
		"no such file":       {"passwordFile: /nosuch", "/nosuch", "passwordFile: stat /nosuch: no such file or directory"},
		"device":             {"passwordFile: /dev/zero", "/dev/zero", "passwordFile: /dev/zero: not a regular file"},
		"no such variable":   {"passwordEnv: FAIRLEAD_TEST_NONE", "FAIRLEAD_TEST_NONE", "passwordEnv: password: environment variable FAIRLEAD_TEST_NONE has 0 bytes: want 1 to 80"},
		"long password":      {"passwordEnv: FAIRLEAD_TEST_LONG", "FAIRLEAD_TEST_LONG", "passwordEnv: password: environment variable FAIRLEAD_TEST_LONG has 81 bytes: want 1 to 80"},
		"password":           {"password: s3cret", "password:", `password: unknown field: did you mean "passwordEnv"?`},
		"password's address": {"passwordFil: /nosuch", "passwordFil:", `passwordFil: unknown field: did you mean "passwordFile"?`},
	} {
		t.Run(name, func(t *testing.T) { checkAt(t, withPeer(test.fields), test.mark, "bgp.peers[0]."+test.want) })
	}
}

func TestSpeakerErrors(t *testing.T) {
	for name, test := range map[string]struct{ section, want string }{
		"nothing":        {"{}", "f:2:6: bgp.asn: missing\nf:2:6: bgp.routerID: missing\nf:2:6: bgp.peers: missing"},
		"no peers":       {"{asn: 1, routerID: 10.0.0.1, peers: []}", "f:2:42: bgp.peers: no peer: want at least one"},
		"delay":          {"{asn: 1, routerID: 10.0.0.1, shutdownDelay: 1h, peers: [{address: 10.0.0.2, asn: 2}]}", "f:2:50: bgp.shutdownDelay: 1h0m0s is out of range: want 0s to 10m0s"},
		"iBGP hops":      {"{asn: 1, routerID: 10.0.0.1, peers: [{address: 10.0.0.2, asn: 1, multihop: 2}]}", "f:2:81: bgp.peers[0].multihop: only with eBGP: this peer is in the node's own AS and may be any number of hops away"},
		"hops of no AS":  {"{asn: 0, routerID: 10.0.0.1, peers: [{address: 10.0.0.2, asn: 1, multihop: 2}]}", "f:2:12: bgp.asn: 0 is out of range: want 1 to 4294967294"},
		"peer twice":     {"{asn: 1, routerID: 10.0.0.1, peers: [{address: 10.0.0.2, asn: 1}, {address: 10.0.0.2, asn: 2}]}", "f:2:82: bgp.peers[1].address: 10.0.0.2 is the address of another peer"},
		"mapped address": {"{asn: 1, routerID: 10.0.0.1, peers: [{address: '::ffff:10.0.0.2', asn: 1}]}", "f:2:53: bgp.peers[0].address: ::ffff:10.0.0.2 is an IPv4-mapped IPv6 address: write 10.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) { check(t, withBGP(test.section), test.want) })
	}
}

func TestPolicyErrors(t *testing.T) {
	for name, test := range map[string]struct{ list, mark, want string }{
		"none":              {"[]", "", ""},
		"narrow first":      {"[{prefixes: [10.1.1.0/24]}, {prefixes: [10.1.0.0/16, 10.2.0.0/16]}]", "", ""},
		"dead":              {"[{prefixes: [10.1.0.0/16]}, {prefixes: [10.1.1.0/24]}]", "10.1.1.0", "[1].prefixes[0]: 10.1.1.0/24 has no effect: it lies within 10.1.0.0/16, which comes first"},
		"VLAN 4095":         {"[{vlan: 4095, prefixes: [10.1.0.0/16], nextHop4: 10.0.3.1}]", "4095", "[0].vlan: 4095 is out of range: want 1 to 4094"},
		"VLAN without hop":  {"[{vlan: 100, prefixes: [10.1.0.0/16]}]", "100", "[0].vlan: without nextHop4: want the node's address in this VLAN, where the router sends packets"},
		"VLAN without hop6": {`[{prefixes: [10.1.0.0/16, "fd00::/64"], nextHop4: 10.0.3.1, vlan: 100}]`, "100", "[0].vlan: without nextHop6: want the node's address in this VLAN, where the router sends packets"},
		"VLAN aggregate":    {"[{vlan: 100, prefixes: [10.1.0.0/16], nextHop4: 10.0.3.1, aggregate: true}]", "true", "[0].aggregate: not with vlan: packets to unused addresses would be routed back into the VLAN"},
		"VLANs":             {"[{vlan: 100, prefixes: [10.1.0.0/16], nextHop4: 10.0.3.1}, {vlan: 200, prefixes: [10.1.0.0/16], nextHop4: 10.0.4.1}, {prefixes: [10.1.0.0/16]}]", "", ""},
		"dead in a VLAN":    {"[{prefixes: [10.1.0.0/16], vlan: 7, nextHop4: 10.0.3.1}, {prefixes: [10.1.1.0/24], vlan: 7, nextHop4: 10.0.3.1}]", "10.1.1.0", "[1].prefixes[0]: 10.1.1.0/24 has no effect: it lies within 10.1.0.0/16, which comes first"},
		"twice":             {"[{prefixes: [10.1.0.0/16, 10.1.0.0/16]}]", "10.1.0.0", "[0].prefixes[1]: 10.1.0.0/16 has no effect: it lies within 10.1.0.0/16, which comes first"},
		"bits behind":       {"[{prefixes: [10.1.1.1/24]}]", "10.1.1.1", "[0].prefixes[0]: prefix 10.1.1.1/24 has host bits set: write 10.1.1.0/24"},
		"no prefix":         {"[{prefixes: []}]", "[]}", "[0].prefixes: no prefix: want at least one"},
		"prefixes missing":  {"[{aggregate: true}]", "{aggregate", "[0].prefixes: missing"},
		"default route":     {"[{prefixes: ['::/0'], aggregate: true}]", "true", "[0].aggregate: not with a prefix of length 0: it would be a default route"},
		"unused hop":        {"[{prefixes: ['fd00::/8'], nextHop4: 10.0.0.1}]", "10.0.0.1", "[0].nextHop4: the policy has no IPv4 prefix"},
		"unused hop of six": {"[{prefixes: [10.0.0.0/8], nextHop6: 'fd00::1'}]", "'fd00::1'", "[0].nextHop6: the policy has no IPv6 prefix"},
		"other family":      {"[{prefixes: ['fd00::/8'], nextHop6: 10.0.0.1}]", "10.0.0.1", "[0].nextHop6: 10.0.0.1 is an IPv4 address, which can't be the next hop of an IPv6 prefix"},
		"loopback hop":      {"[{prefixes: [10.0.0.0/8], nextHop4: 127.0.0.1}]", "127.0.0.1", "[0].nextHop4: 127.0.0.1 is a loopback address: want one that others can reach"},
		"community":         {"[{prefixes: [10.0.0.0/8], communities: ['65536:1']}]", "'65536:1'", `[0].communities[0]: bad community "65536:1": want two numbers up to 65535, as 65021:100`},
		"large community":   {"[{prefixes: [10.0.0.0/8], communities: ['1:2:3:4']}]", "'1:2:3:4'", `[0].communities[0]: bad large community "1:2:3:4": want three numbers up to 4294967295, as 65021:1:2`},
		"same communities":  {"[{prefixes: [10.0.0.0/8], communities: ['1:2', '1:2:3', '01:2']}]", "'01:2'", "[0].communities[2]: 1:2 is given twice"},
		"graceful shutdown": {"[{prefixes: [10.0.0.0/8], communities: ['65535:0']}]", "'65535:0'", "[0].communities[0]: 65535:0 is GRACEFUL_SHUTDOWN, which is set while the node drains"},
		"preference":        {"[{prefixes: [10.0.0.0/8], localPreference: -1}]", "-1", "[0].localPreference: -1 is out of range: want 0 to 4294967295"},
		"prepend":           {"[{prefixes: [10.0.0.0/8], prepend: 17}]", "17", "[0].prepend: 17 is out of range: want 0 to 16"},
		"bandwidth":         {"[{prefixes: [10.0.0.0/8], linkBandwidth: 10X}]", "10X", `[0].linkBandwidth: bad bandwidth "10X": want bits per second, such as 10G or 400M`},
		"no bandwidth":      {"[{prefixes: [10.0.0.0/8], linkBandwidth: 0}]", "0}], peers", "[0].linkBandwidth: have 0: want bits per second, such as 10G or 400M"},
		"endless bandwidth": {"[{prefixes: [10.0.0.0/8], linkBandwidth: 1e99T}]", "1e99T", `[0].linkBandwidth: bad bandwidth "1e99T": want bits per second, such as 10G or 400M`},
	} {
		t.Run(name, func(t *testing.T) { checkAt(t, withPolicies(test.list), test.mark, "bgp.announce"+test.want) })
	}
}

// A password file that is readable by all users gets a warning. No error or warning has the
// password itself.
func TestPasswordFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for _, test := range []struct {
		text     string
		mode     os.FileMode
		err      string
		warnings int
	}{
		{"s3cret\nmore", 0o640, "", 0},
		{"s3cret", 0o644, "", 1},
		{"", 0o600, "file " + path + " has 0 bytes: want 1 to 80", 0},
		{strings.Repeat("s3cret", 14), 0o600, "file " + path + " has 84 bytes: want 1 to 80", 0},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		conf, err := config.Parse("f", withPeer("passwordFile: "+path), limits())
		if test.err != "" {
			if err == nil || !strings.HasSuffix(err.Error(), test.err) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: error %v, want %s", test.mode, err, test.err)
			}
			continue
		}
		if err != nil || len(conf.Warnings) != test.warnings {
			t.Errorf("%s: warnings %v (%v), want %d", test.mode, conf, err, test.warnings)
		}
	}
	t.Setenv("FAIRLEAD_TEST_PASSWORD", "s3cret")
	checkAt(t, withPeer("passwordEnv: FAIRLEAD_TEST_PASSWORD, passwordFile: /nosuch"), "FAIRLEAD", "bgp.peers[0].passwordEnv: not with passwordFile: want one of them\n"+
		"f:2:130: bgp.peers[0].passwordFile: stat /nosuch: no such file or directory")
}
