// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/config"
)

func TestKubernetes(t *testing.T) {
	for _, text := range []string{"", "# nothing\n  \n", "node: {interfaces: auto}", "dataplane: {xdpMode: generic}"} {
		c, err := config.ParseKubernetes("f", text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if c.Node.Interfaces != nil || c.Node.Name != "" || c.BGP != nil || c.Node.DrainTimeout != 30*time.Second ||
			c.Dataplane.Flows == 0 || !c.Observe.Listen.IsValid() || c.Node.NAT.Ports.Last == 0 {
			t.Errorf("%q became %+v", text, c)
		}
	}
	c, err := config.ParseKubernetes("f", "node: {interfaces: [eth1], tunnelEnds: [10.0.0.1], tunnelPeers: [10.0.0.0/8], drainTimeout: 5s}\nbgp: {asn: 65021, shutdownDelay: 1s}\n")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Node.Interfaces, []string{"eth1"}) || c.Node.DrainTimeout != 5*time.Second ||
		c.BGP.ASN != 65021 || c.BGP.RouterID.IsValid() || c.BGP.ShutdownDelay != time.Second || len(c.Node.TunnelEnds) != 1 {
		t.Errorf("became %+v, bgp %+v", c, c.BGP)
	}
	c, err = config.ParseKubernetes("f", "bgp: {asn: 65021, routerID: 10.0.0.1}")
	if err != nil || c.BGP.RouterID != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("router id %v, error %v", c, err)
	}
}

// Settings that objects of the cluster define are rejected in the file.
func TestKubernetesErrors(t *testing.T) {
	for text, want := range map[string]string{
		"services: []":                   "f:1:11: services: not here: with --kubernetes services are the cluster's Services",
		"node:\n  name: lb1":             "f:2:9: node.name: not here: with --kubernetes the node's name is that of its Node, see --node-name",
		"bgp:\n  asn: 1\n  peers: []":    "f:3:10: bgp.peers: not here: with --kubernetes peers are the cluster's BGPPeers",
		"bgp:\n  asn: 1\n  announce: []": "f:3:13: bgp.announce: not here: with --kubernetes AddressPools define how their addresses are announced",
		"bgp: {routerID: 10.0.0.1}":      "f:1:6: bgp.asn: missing",
		"node: {interfaces: []}":         "f:1:20: node.interfaces: no interface: want at least one",
		"nodes: {}":                      `f:1:1: nodes: unknown field: did you mean "node"?`,
	} {
		_, err := config.ParseKubernetes("f", text)
		if err == nil || err.Error() != want {
			t.Errorf("%q: error\n%v, want\n%s", text, err, want)
		}
	}
}
