// SPDX-License-Identifier: Apache-2.0

package openstack

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
	"time"

	"fairlead.io/fairlead/internal/apiserver"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// Controller is the host of OpenStack and the API server.
	Controller = "controller"
	// VIPVLAN is the ID of the VLAN in which packets for VIPs arrive.
	VIPVLAN = 101
	// MemberVLAN is the members'.
	MemberVLAN = 102
	// APIAddress is the API server's address, which agents of balancers follow.
	APIAddress = "10.0.2.4:9575"
)

// topology is the lab "ecmp" with members in a VLAN of their own, a router that learns the routes to
// VIPs in another one, and a controller. Servers have no VIPs yet.
//
//	client ── router ── switch ─┬─ lb1, lb2 …
//	                            ├─ server1, server2 …
//	                            └─ controller
func topology(balancers, servers int) (netlab.Topology, error) {
	made, err := netlab.ECMP(netlab.ECMPOptions{
		Forward: lb.L2DSR, Balancers: balancers, Servers: servers, Router: netlab.FRR,
	})
	if err != nil {
		return made, err
	}
	made = netlab.ServersInVLAN(made, MemberVLAN)
	made.Services, made.Learned, made.Probes = nil, nil, nil
	netlab.PlugRouter(&made, netlab.Interface{Name: "eth3", VLAN: VIPVLAN, Addresses: transit(1)})
	for i := range made.Hosts {
		if server := &made.Hosts[i]; server.Role == netlab.Server {
			server.Loopback, server.Processes = nil, server.Processes[:1]
		}
	}
	address := netip.MustParseAddrPort(APIAddress)
	certificate, key, err := selfSigned(address.Addr())
	if err != nil {
		return made, err
	}
	token, tokens, err := newToken(apiserver.Token{ID: "octavia", Projects: []string{"*"}})
	if err != nil {
		return made, err
	}
	for n := range balancers {
		name := fmt.Sprint("lb", n+1)
		nodeToken, line, err := newToken(apiserver.Token{ID: name, Nodes: []string{name}})
		if err != nil {
			return made, err
		}
		tokens += line
		followAPI(&made, name, n, map[string]string{"node.token": nodeToken, "server.crt": certificate})
	}
	made.Hosts = append(made.Hosts, netlab.Host{
		Name: Controller, Role: Controller,
		Files: map[string]string{
			"octavia.token": token, "tokens.yaml": tokens, "apiserver-policy.yaml": policy,
			"server.crt": certificate, "server.key": key,
		},
	})
	addresses := []netip.Prefix{netip.PrefixFrom(address.Addr(), 24)}
	netlab.Plug(&made, Controller, netlab.Interface{Name: "eth0", Addresses: addresses}, Controller)
	return made, nil
}

// policy is the API server's: each address can be requested in a VLAN of Neutron's, and in the pool for VIPs
// without a VLAN those that Neutron gives to tempest.
const policy = `addressPools:
- {name: untagged, addresses: [128.0.0.0/22], external: true, projects: ["*"]}
services: {perNamespace: {services: 8192, backends: 65536, probes: 65536}}
dataPlane: {ipvs: true}
loadBalancers:
  memberNetworks: [10.0.4.0/24, "fd00:4::/64", 192.0.2.0/29]
  memberMACs: true
  segments: [{type: vlan, first: 100, last: 199}]
`

// NextHops are the addresses of the first balancers in the VLAN of VIPs, to which the router sends packets
// for a VIP.
func NextHops(balancers int, vip netip.Addr) (hops []string) {
	for n := range balancers {
		for _, hop := range transit(11 + n) {
			if hop.Addr().Is4() == vip.Is4() {
				hops = append(hops, hop.Addr().String())
			}
		}
	}
	return hops
}

// transit are the addresses of a host in VIPVLAN, between router and balancers.
func transit(number int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.0.5.%d/24", number)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:5::%d/64", number)),
	}
}

// followAPI has the nth balancer follow the API server, and announce VIPs in VIPVLAN, where it has no
// interface.
func followAPI(made *netlab.Topology, name string, n int, files map[string]string) {
	router, balancer := made.Host("router"), made.Host(name)
	hops := transit(11 + n)
	for _, hop := range hops {
		router.Neighbours = append(router.Neighbours, netlab.Neighbour{
			Interface: "eth3", Address: hop.Addr(), MAC: balancer.Interfaces[0].MAC,
		})
	}
	settings := balancer.Agent.With(nil)
	settings.BGP.Policies = []bgp.Policy{{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:10:1::/48")},
		VLAN:     VIPVLAN, NextHop4: hops[0].Addr(), NextHop6: hops[1].Addr(),
	}}
	files[netlab.AgentFile] = strings.TrimSuffix(settings.YAML(), "services: []\n") +
		"apiServer: {urls: ['https://" + APIAddress + "'], tokenFile: node.token, caFile: server.crt}\n"
	balancer.Files = files
	balancer.Processes[0].Args = append(balancer.Processes[0].Args, "--state-dir", "state")
}

// newToken makes a token, and its line in the file of tokens.
func newToken(of apiserver.Token) (token, line string, err error) {
	token, entry, err := apiserver.NewToken(of)
	return token, entry.Line(), err
}

// selfSigned makes the certificate of a server, which is its own authority, and its key.
func selfSigned(address netip.Addr) (certificate, key string, err error) {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: Controller}, IPAddresses: []net.IP{address.AsSlice()},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, made.Public(), made)
	if err != nil {
		return "", "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return "", "", err
	}
	block := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", private), nil
}
