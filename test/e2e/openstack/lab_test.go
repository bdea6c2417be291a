// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

const (
	// controller is the host of OpenStack and the API server.
	controller = "controller"
	// Packets for VIPs arrive in vipVLAN, members are in memberVLAN.
	vipVLAN    = 101
	memberVLAN = 102
	// apiAddress is the API server's address, which agents of balancers follow.
	apiAddress = "10.0.2.4:9575"
)

// topology is the lab "ecmp" with members in a VLAN of their own, a router that learns the routes to
// VIPs in another one, and a controller. Servers have no VIPs yet.
//
//	client ── router ── switch ─┬─ lb1, lb2
//	                            ├─ server1, server2
//	                            └─ controller
func topology(t *testing.T) netlab.Topology {
	t.Helper()
	made, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 2, Servers: 2, Router: netlab.FRR})
	if err != nil {
		t.Fatal(err)
	}
	made = harness.ServersInVLAN(made, memberVLAN)
	made.Services, made.Learned, made.Probes = nil, nil, nil
	harness.PlugRouter(&made, netlab.Interface{Name: "eth3", VLAN: vipVLAN, Addresses: transit(1)})
	for i := range made.Hosts {
		if server := &made.Hosts[i]; server.Role == netlab.Server {
			server.Loopback, server.Processes = nil, server.Processes[:1]
		}
	}
	address := netip.MustParseAddrPort(apiAddress)
	certificate, key := selfSigned(t, address.Addr())
	tokens, token := apiToken(t, "octavia", "--project", "*")
	for n, name := range []string{"lb1", "lb2"} {
		line, nodeToken := apiToken(t, name, "--node", name)
		tokens += line
		followAPI(t, &made, name, n, map[string]string{"node.token": nodeToken, "server.crt": certificate})
	}
	made.Hosts = append(made.Hosts, netlab.Host{
		Name: controller, Role: controller,
		Files: map[string]string{
			"octavia.token": token, "tokens.yaml": tokens, "server.crt": certificate, "server.key": key, "apiserver-policy.yaml": policy,
		},
	})
	harness.Plug(&made, controller, netlab.Interface{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(address.Addr(), 24)}}, controller)
	return made
}

// policy is the API server's: VIPs are in vipVLAN, where each address can be requested.
var policy = fmt.Sprintf(`addressPools: []
loadBalancers:
  memberNetworks: [10.0.4.0/24, "fd00:4::/64"]
  memberMACs: true
  segments: [{type: vlan, first: %d}, {type: vlan, first: %d}]
`, vipVLAN, memberVLAN)

// transit are the addresses of a host in vipVLAN, between router and balancers.
func transit(number int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.0.5.%d/24", number)), netip.MustParsePrefix(fmt.Sprintf("fd00:5::%d/64", number)),
	}
}

// followAPI has the nth balancer follow the API server, and announce VIPs in vipVLAN, where it has no
// interface.
func followAPI(t *testing.T, made *netlab.Topology, name string, n int, files map[string]string) {
	t.Helper()
	router, balancer := made.Host("router"), made.Host(name)
	hops := transit(11 + n)
	for _, hop := range hops {
		router.Neighbours = append(router.Neighbours, netlab.Neighbour{Interface: "eth3", Address: hop.Addr(), MAC: balancer.Interfaces[0].MAC})
	}
	settings := balancer.Agent.With(nil)
	settings.BGP.Policies = []bgp.Policy{{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:10:1::/48")},
		VLAN:     vipVLAN, NextHop4: hops[0].Addr(), NextHop6: hops[1].Addr(),
	}}
	file, found := strings.CutSuffix(settings.YAML(), "services: []\n")
	if !found {
		t.Fatalf("the configuration is\n%s", file)
	}
	files[netlab.AgentFile] = file + "apiServer: {urls: ['https://" + apiAddress + "'], tokenFile: node.token, caFile: server.crt}\n"
	balancer.Files = files
	balancer.Processes[0].Args = append(balancer.Processes[0].Args, "--state-dir", "state")
}

// apiToken makes a token, and its line in the file of tokens.
func apiToken(t *testing.T, args ...string) (line, token string) {
	t.Helper()
	status, stdout, stderr := harness.Fairlead(t, append([]string{"apiserver", "token"}, args...)...)
	if status != 0 {
		t.Fatal(stderr)
	}
	return stderr, strings.TrimSpace(stdout)
}

// selfSigned makes the certificate of a server, which is its own authority, and its key.
func selfSigned(t *testing.T, address netip.Addr) (certificate, key string) {
	t.Helper()
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: controller}, IPAddresses: []net.IP{address.AsSlice()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, made.Public(), made)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", private)
}
