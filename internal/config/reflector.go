// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Reflector is the parsed configuration file of a route reflector, with all defaults
// filled in.
type Reflector struct {
	// Name is unique among reflectors; the default is the host name.
	Name    string
	Observe Observe
	// BGP is valid: its ranges and routers are distinct.
	BGP bgp.Reflection
	// Warnings are in the order of the file.
	Warnings []Warning
}

const (
	maxClients     = 4096
	maxRestartWait = 5 * time.Minute
)

// defaultReflectorListen differs from an agent's, as both may run on one node.
func defaultReflectorListen() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9572)
}

// ParseReflector reads a reflector's configuration; errors are those of Parse.
func ParseReflector(name string, data []byte) (*Reflector, error) {
	d := &decoder{file: name}
	c, err := parse(d, data, readReflector)
	if err != nil {
		return nil, err
	}
	c.Warnings = d.warnings
	return c, nil
}

func readReflector(v value, c *Reflector) {
	c.Observe.Listen = defaultReflectorListen()
	b := &c.BGP
	b.RestartWait = bgp.DefaultRestartWait
	v.readFields(
		required("reflector", c.readSelf),
		optional("listen", listenAt(&b.Listen)),
		required("clients", nonEmpty(&b.Clients, "range of clients", readRange)),
		required("routers", peers(&b.Routers)),
		required("accept", nonEmpty(&b.Accept, "prefix", readAcceptPrefix)),
		optional("nextHops", nonEmpty(&b.NextHops, "prefix", prefix)),
		optional("observe", c.Observe.read),
	)
	if b.Listen == nil {
		b.Listen = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	if !b.ClusterID.IsValid() {
		b.ClusterID = b.RouterID
	}
	for i := range b.Clients {
		b.Clients[i].ASN = cmp.Or(b.Clients[i].ASN, b.ASN)
	}
	c.check(v)
}

func (c *Reflector) readSelf(v value) {
	b := &c.BGP
	v.readFields(
		optional("name", nodeName(&c.Name)),
		required("asn", number(&b.ASN, 1, bgp.MaxASN)),
		required("routerID", identifier(&b.RouterID, "router id")),
		optional("clusterID", identifier(&b.ClusterID, "cluster id")),
		optional("port", port(&b.Port)),
		optional("restartWait", durationWithin(&b.RestartWait, 0, maxRestartWait)),
	)
	defaultToHost(v, &c.Name)
}

// listenAt reads listen addresses for clients; unspecified addresses are allowed.
func listenAt(to *[]netip.Addr) reader {
	return nonEmpty(to, "address", distinct(to, address, func(a netip.Addr) error {
		if a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%s is not a listen address: want a unicast address without zone", a)
		}
		return nil
	}))
}

// readRange leaves the ASN at 0 if it is not given; read replaces it by the reflector's.
func readRange(v value, r *bgp.Range) {
	r.MaxClients, r.HoldTime, r.RestartTime = bgp.DefaultMaxClients, bgp.DefaultHoldTime, bgp.DefaultRestartTime
	v.readFields(
		required("prefix", func(v value) { prefix(v, &r.Prefix) }),
		optional("asn", number(&r.ASN, 1, bgp.MaxASN)),
		optional("maxClients", number(&r.MaxClients, 1, maxClients)),
		optional("ttlSecurity", number(&r.TTLSecurity, 1, math.MaxUint8-1)),
		optional("holdTime", holdTime(&r.HoldTime)),
		optional("restartTime", restartTime(&r.RestartTime)),
		optional("bfd", bfd(&r.BFD)),
		optional("passwordFile", passwordFile(&r.Password)),
		optional("passwordEnv", passwordEnv(&r.Password)),
	)
	checkPasswordSource(v, r.Password)
}

// readAcceptPrefix reads a prefix whose host routes are accepted, or a mapping with the
// shortest accepted prefix length.
func readAcceptPrefix(v value, a *bgp.Acceptance) {
	within := func(v value) {
		if prefix(v, &a.Prefix); a.Prefix.IsValid() && a.Prefix.Bits() == 0 {
			v.failf("%s would allow clients to announce any address", a.Prefix)
		}
	}
	if _, ok := v.node.(*ast.MappingNode); !ok {
		within(v)
		a.Shortest = a.Prefix.Addr().BitLen()
		return
	}
	v.readFields(
		required("prefix", within),
		required("shortest", number(&a.Shortest, 1, 128)),
	)
	if v.failedAny("prefix", "shortest") {
		return
	}
	if low, high := a.Prefix.Bits(), a.Prefix.Addr().BitLen(); a.Shortest < low || a.Shortest > high {
		v.at("shortest").failf("%w", lb.OutOfRange(a.Shortest, low, high))
	}
}

// check rejects overlapping ranges of clients.
func (c *Reflector) check(v value) {
	clients := c.BGP.Clients
	for i := range clients {
		for j := range i {
			a, b := clients[i].Prefix, clients[j].Prefix
			if a.IsValid() && b.IsValid() && a.Overlaps(b) {
				v.at(fmt.Sprintf("clients[%d].prefix", i)).failf("%s and %s of clients[%d] overlap", a, b, j)
			}
		}
	}
	for i := range c.BGP.Routers {
		checkMultihop(v.at(fmt.Sprintf("routers[%d]", i)), &c.BGP.Routers[i], c.BGP.Local, v.failedAny("reflector.asn"))
	}
}

// checkReload returns a RestartError if the change from c to next needs a restart.
func (c *Reflector) checkReload(next *Reflector) error {
	var changes changes
	changes.compare("reflector.name", c.Name, next.Name)
	changes.compare("reflector.asn", c.BGP.ASN, next.BGP.ASN)
	changes.compare("reflector.routerID", c.BGP.RouterID, next.BGP.RouterID)
	changes.compare("reflector.clusterID", c.BGP.ClusterID, next.BGP.ClusterID)
	changes.compare("reflector.port", c.BGP.ListenPort(), next.BGP.ListenPort())
	changes.compare("listen", c.BGP.Listen, next.BGP.Listen)
	changes.compare("observe.listen", c.Observe, next.Observe)
	return changes.err("reflector")
}

func (c *Reflector) warnings() []Warning { return c.Warnings }

func (c *Reflector) size() []any {
	return []any{"ranges", len(c.BGP.Clients), "routers", len(c.BGP.Routers), "accepted", len(c.BGP.Accept)}
}
