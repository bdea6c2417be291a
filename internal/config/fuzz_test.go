// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/config"
)

// FuzzParse shows that no file makes Parse panic, that each error has a position in
// the file, and that an accepted Config is valid.
func FuzzParse(f *testing.F) {
	design, err := os.ReadFile("testdata/design.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(design),
		"node: {interfaces: [eth0]}\nservices: [{name: a, address: 10.1.1.1, port: 80, forward: ipip, backends: [{address: fd00::1}]}]\n",
		withPolicies("[{prefixes: [10.1.1.0/24, '::/0'], communities: ['1:2', '1:2:3'], linkBandwidth: 2.5G, nextHop4: 'fd00::1', med: 0}]"),
		withPeer("bfd: {interval: 10ms}, ttlSecurity: 1, passwordEnv: HOME, restartTime: 0s"),
		withPeer("holdTime: 1s, multihop: 300, bfd: {interval: 1ms, multiplier: 0}, password: a, passwordFile: /nonexistent"),
		withBGP("{asn: 0, routerID: 'fd00::1', peers: [{address: 'fe80::1%eth0', asn: x}, {address: 10.0.2.1, asn: 1.1}, {}]}"),
		withPolicies("[{prefixes: [10.1.0.1/24, x], communities: [no-export, '65536:1'], linkBandwidth: 2Q, aggregate: maybe}, {}]"),
		withHealth("{type: https, method: HEAD, path: /x, expectedCodes: '200-299,404', headers: {X-A: b}, tls: {verify: true, ca: ca.pem}}"),
		withHealth("{type: dns, dns: {name: a.example, type: AAAA, rcode: nxdomain}, rise: 0, fall: 99, panicThreshold: 101}"),
		withHealth(`{type: udp, send: 'a\n', expect: "\\x00", port: 70000, initially: maybe}`), withHealth("nonsense"),
		"node: {nam: x, name: 'a b', interfaces: [eth0, eth0, ''], tunnelEnds: [10.0.0.1, 10.0.0.1], " +
			"tunnelPeers: [10.0.0.0/33], nat: {addresses: ['::1', 10.0.0.1], ports: 2047-1024}, drainTimeout: -1s}\nservices: 7\n",
		"node: {name: lb1, interfaces: [eth0]}\nroutes: {hook: /bin/sh, timeout: 100ms}\n" +
			"dataplane: {kind: ipvs, capacity: {services: 0}}\nservices:\n- {name: a, address: 10.1.1.1, port: 443, protocol: udp, " +
			"forward: l2dsr, affinity: quic, quic: {serverIDLength: 8}, segment: {type: vlan, id: 5}, unavailable: reject, " +
			"sources: {allow: [10.0.0.0/8], deny: [x]}, limits: {newFlows: -1}, idleTimeout: 1h, backends: [{address: 10.0.0.1, " +
			"weight: 99999, mac: '02:00:00:00:00:01', backup: true, serverID: '00'}, {address: 10.0.0.1}]}\n" +
			"- {name: a, address: 10.1.1.1, port: 443}\n",
		"node:\n\tname: x\n", "a: |\n  b\nc: >-\n d\n", "- &a [*a]\n", "? a\n: b\n", "\"\\u00e9\": 'x'\r\n", "---\n...\n---\n", "\ufeff# x\n", "[[{", "a: b: c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		conf, err := config.Parse("f", input, limits())
		if err == nil {
			checkAccepted(t, conf)
			return
		}
		var all config.Errors
		if !errors.As(err, &all) || len(all) == 0 || conf != nil {
			t.Fatalf("have %T with %v, want Errors alone", err, conf)
		}
		lines := strings.Count(input, "\n") + strings.Count(input, "\r") + 1
		for _, e := range all {
			if e.File != "f" || e.Line < 1 || e.Line > lines || e.Column < 1 || e.Err.Error() == "" {
				t.Errorf("%#v has no place within %d lines", e, lines)
			}
		}
	})
}

// FuzzParseReflector shows the same for the file of a reflector.
func FuzzParseReflector(f *testing.F) {
	const peers = "reflector: {asn: 65021, routerID: 10.0.2.2}\nclients: [{prefix: 10.0.2.0/24, bfd: {multihop: true}}]\n" +
		"routers: [{address: 10.0.2.1, asn: 65000, multihop: 2}]\n"
	f.Add(peers + "accept: [10.1.0.0/16, {prefix: 'fd00::/32', shortest: 64}]\nnextHops: [10.0.2.0/24]\nlisten: ['::']\n")
	f.Add(peers + "accept: [0.0.0.0/0]\nclients: [{}, {prefix: 10.0.2.0/99}]\n")
	f.Add("reflector: {asn: 0, routerID: x, clusterID: 'fd00::1'}\nclients: []\nrouters: [{address: x}, {}]\nlisten: [x]\n")
	f.Add(peers + "accept: [{prefix: 10.1.0.0/16, shortest: 8}]\nnextHops: [x]\nobserve: {listen: ':x'}\nnonsense: 1\n")
	f.Fuzz(func(t *testing.T, input string) {
		c, err := config.ParseReflector("f", input)
		if err == nil {
			if b := &c.BGP; b.ASN == 0 || !b.RouterID.Is4() || !b.ClusterID.Is4() || len(b.Listen)*len(b.Clients)*len(b.Routers)*len(b.Accept) == 0 {
				t.Errorf("accepted %+v", b)
			}
			return
		}
		if all := (config.Errors)(nil); !errors.As(err, &all) || len(all) == 0 || c != nil {
			t.Fatalf("have %T with %v, want Errors alone", err, c)
		}
	})
}

// FuzzParseKubernetes shows the same for the file of an agent in Kubernetes.
func FuzzParseKubernetes(f *testing.F) {
	for _, seed := range []string{
		"", "node: {interfaces: [eth1], tunnelEnds: [10.0.0.1], tunnelPeers: [10.0.0.0/8], drainTimeout: 5s, nat: {addresses: [10.0.0.1], ports: 1024-2047}}\n",
		"bgp: {asn: 65021, routerID: 10.0.0.1, shutdownDelay: 1s}\n", "services: []\nnode:\n  name: lb1\nbgp: {peers: [], announce: {}}\n",
		"node: {interfaces: ['', a/b], nat: {addresses: ['::1'], ports: 9-x}, tunnelPeers: [10.0.0.0/8], drainTimeout: soon}\nnodes: {}\n",
		"bgp: {asn: 0, routerID: 'fd00::1', peers: []}\nroutes: {hook: /bin/sh}\nobserve: {listen: ':x'}\nservices: []\n",
		"dataplane: {kind: xdp, filterPods: true, xdpMode: generic, hashSeed: 7}\nobserve: {listen: '[::1]:80'}\n", "node: {interfaces: auto}\nbgp: null\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		c, err := config.ParseKubernetes("f", input)
		if err == nil {
			if len(c.Services) != 0 || c.Node.Name != "" || c.BGP != nil && (c.BGP.ASN == 0 || len(c.BGP.Peers)+len(c.BGP.Policies) != 0) {
				t.Errorf("accepted %+v with %+v", c, c.BGP)
			}
			return
		}
		if all := (config.Errors)(nil); !errors.As(err, &all) || len(all) == 0 || c != nil {
			t.Fatalf("have %T with %v, want Errors alone", err, c)
		}
	})
}

func checkAccepted(t *testing.T, c *config.Config) {
	t.Helper()
	if c.Node.Name == "" || len(c.Node.Interfaces) == 0 {
		t.Errorf("incomplete node %v", c.Node)
	}
	if c.BGP != nil && (c.BGP.ASN == 0 || !c.BGP.RouterID.Is4() || len(c.BGP.Peers) == 0) {
		t.Errorf("incomplete speaker %v", c.BGP)
	}
	for _, s := range c.Services {
		if found := append(s.Check(), limits().Check(&s)...); len(found) > 0 {
			t.Errorf("accepted a service with %v", found)
		}
	}
}
