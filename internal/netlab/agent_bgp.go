// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/bgp"
)

// writeBGP writes the bgp section, in full.
func writeBGP(b *strings.Builder, c *bgp.Config) {
	fmt.Fprintf(b, "bgp:\n  asn: %d\n  routerID: %s\n  shutdownDelay: %s\n  peers:\n", c.ASN, c.RouterID, c.ShutdownDelay)
	for i := range c.Peers {
		fmt.Fprintf(b, "    - {%s}\n", peerText(&c.Peers[i]))
	}
	if len(c.Policies) > 0 {
		b.WriteString("  announce:\n")
	}
	for i := range c.Policies {
		fmt.Fprintf(b, "    - {%s}\n", policyText(&c.Policies[i]))
	}
}

func peerText(p *bgp.Peer) string {
	f := fields{}
	f.add("address", quoted(p.Address))
	f.add("asn", p.ASN)
	f.addIf(p.Port != 0, "port", p.Port)
	f.addIf(p.LocalAddress.IsValid(), "localAddress", quoted(p.LocalAddress))
	f.addIf(p.Passive, "passive", true)
	f.addIf(p.Multihop != 0, "multihop", p.Multihop)
	f.addIf(p.TTLSecurity != 0, "ttlSecurity", p.TTLSecurity)
	f.add("holdTime", p.HoldTime)
	f.add("restartTime", p.RestartTime)
	if p.BFD != nil {
		f.add("bfd", bfdText(p.BFD))
	}
	f.addIf(p.Password.File != "", "passwordFile", quote(p.Password.File))
	f.addIf(p.Password.Env != "", "passwordEnv", quote(p.Password.Env))
	return f.String()
}

func bfdText(b *bgp.BFD) string {
	return fmt.Sprintf("{interval: %s, multiplier: %d}", b.Interval, b.Multiplier)
}

func policyText(p *bgp.Policy) string {
	f := fields{}
	f.add("prefixes", list(p.Prefixes))
	f.addIf(p.Aggregate, "aggregate", true)
	f.addIf(p.NextHop4.IsValid(), "nextHop4", quoted(p.NextHop4))
	f.addIf(p.NextHop6.IsValid(), "nextHop6", quoted(p.NextHop6))
	var communities []string
	for _, c := range p.Communities {
		communities = append(communities, strconv.Quote(c.String()))
	}
	for _, c := range p.LargeCommunities {
		communities = append(communities, strconv.Quote(c.String()))
	}
	f.addIf(communities != nil, "communities", "["+strings.Join(communities, ", ")+"]")
	if p.LocalPreference != nil {
		f.add("localPreference", *p.LocalPreference)
	}
	if p.MED != nil {
		f.add("med", *p.MED)
	}
	f.addIf(p.Prepend != 0, "prepend", p.Prepend)
	const bitsPerByte = 8
	f.addIf(p.LinkBandwidth != 0, "linkBandwidth", strconv.FormatFloat(float64(p.LinkBandwidth)*bitsPerByte, 'f', 0, 64))
	return f.String()
}

// fields are those of a mapping that stands on one line.
type fields []string

func (f *fields) add(name string, value any) { *f = append(*f, fmt.Sprintf("%s: %v", name, value)) }

func (f *fields) addIf(given bool, name string, value any) {
	if given {
		f.add(name, value)
	}
}

func (f fields) String() string { return strings.Join(f, ", ") }

func quoted(a netip.Addr) string { return strconv.Quote(a.String()) }
