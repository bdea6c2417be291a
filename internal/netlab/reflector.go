// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"strings"
)

// ReflectorFile is the reflector's configuration in its host's directory.
const ReflectorFile = "reflector.yaml"

const (
	reflectorName   = "reflector"
	reflectorSocket = "reflector.sock"
)

// reflector draws the route reflector, which knows the router, and takes any
// client of the service network.
func (s *site) reflector(d *drawing) {
	h := Host{
		Name: reflectorName, Role: Reflector,
		Routes:    defaultRoutes(serviceNetwork),
		Files:     map[string]string{ReflectorFile: s.peering.reflectorText()},
		Processes: []Process{reflector(s.fairlead)},
		Socket:    reflectorSocket,
	}
	d.plug(&h, Interface{Name: eth0, Addresses: networkAddresses(serviceNetwork, reflectorNumber)}, s.mtu)
	d.Hosts = append(d.Hosts, h)
}

// reflectorText is the reflector's configuration. Its clients may announce what
// any lab has of VIPs.
func (p *peering) reflectorText() string {
	var b strings.Builder
	id := addresses(serviceNetwork, reflectorNumber)[0]
	fmt.Fprintf(&b, "reflector:\n  name: %s\n  asn: %d\n  routerID: %s\n", reflectorName, balancerASN, id)
	router := p.peer(routerNumber, p.asn())
	client := fields{}
	client.add("prefix", fmt.Sprintf("%q", p.network()))
	client.add("holdTime", router.HoldTime)
	client.add("restartTime", router.RestartTime)
	if !p.behindNAT {
		client.add("bfd", bfdText(router.BFD))
	}
	fmt.Fprintf(&b, "clients:\n  - {%s}\nrouters:\n  - {%s}\n", client, peerText(&router))
	fmt.Fprintf(&b, "accept: %s\n", list([]netip.Prefix{
		netip.PrefixFrom(vips()[0], 16).Masked(), netip.PrefixFrom(vips()[1], 48).Masked(),
	}))
	return b.String()
}

// reflector runs a route reflector with the configuration in its directory.
func reflector(fairlead string) Process {
	return Process{Name: reflectorName, Args: []string{
		fairlead, "reflector", "--config", ReflectorFile, "--socket", reflectorSocket,
	}}
}
