// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
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
func defaultReflectorListen() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:9572") }

// ParseReflector reads a reflector's configuration; errors are as from Parse.
func ParseReflector(name, text string) (*Reflector, error) {
	c := &Reflector{}
	return parse(&decoder{file: name, warnings: &c.Warnings}, text, c, readReflector)
}

func readReflector(v value, c *Reflector) {
	c.Observe.Listen = defaultReflectorListen()
	b := &c.BGP
	b.RestartWait = bgp.DefaultRestartWait
	v.readFields(
		required("reflector", c, readSelf),
		optional("listen", &b.Listen, listenAt),
		required("clients", &b.Clients, nonEmpty("range of clients", list(readRange))),
		required("routers", &b.Routers, peers),
		required("accept", &b.Accept, accepted),
		optional("nextHops", &b.NextHops, nonEmpty("prefix", list(prefix))),
		optional("allow", &b.Allowed, readAllowed),
		optional("observe", &c.Observe, observe),
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

func readSelf(v value, c *Reflector) {
	b := &c.BGP
	v.readFields(
		optional("name", &c.Name, nodeName),
		required("asn", &b.ASN, number[uint32](1, bgp.MaxASN)),
		required("routerID", &b.RouterID, identifier("router id")),
		optional("clusterID", &b.ClusterID, identifier("cluster id")),
		optional("port", &b.Port, port),
		optional("restartWait", &b.RestartWait, durationWithin(0, maxRestartWait)),
	)
	defaultToHost(v, &c.Name)
}

// listenAt reads listen addresses for clients; unspecified addresses are allowed.
func listenAt(v value, to *[]netip.Addr) {
	nonEmpty("address", distinct(address, func(a netip.Addr) error {
		if a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%s is not a listen address: want a unicast address without zone", a)
		}
		return nil
	}))(v, to)
}

// readRange leaves the ASN at 0 if it is not given; read replaces it by the reflector's.
func readRange(v value, r *bgp.Range) {
	r.MaxClients = bgp.DefaultMaxClients
	unauthenticated := false
	var declared v1alpha1.SessionOptions
	var asn uint32
	secret := readSession(v, append(declaredFields(v, &declared),
		required("prefix", &r.Prefix, prefix),
		optional("asn", &asn, number[uint32](1, bgp.MaxASN)),
		optional("maxClients", &r.MaxClients, number[int](1, maxClients)),
		optional("accept", &r.Accept, accepted),
		optional("unauthenticated", &unauthenticated, flag),
	))
	var found []lb.FieldError
	r.Peer, found = spec.Session(&declared)
	v.reportFieldErrors(found)
	r.ASN, r.Password = asn, secret
	switch protected := r.Password != (bgp.Secret{}); {
	case protected && unauthenticated:
		v.at("unauthenticated").failf("not with a password")
	case !protected && !unauthenticated && !v.failedAny("passwordFile", "passwordEnv"):
		v.failf("no password: every host with one of these addresses could announce routes: want passwordFile, passwordEnv or unauthenticated: true")
	}
}

// readAllowed reads limits of clients' attributes.
func readAllowed(v value, a *bgp.Attributes) {
	var declared v1alpha1.RouteAttributes
	var width float32
	v.readFields(append(declaredFields(v, &declared), optional("linkBandwidth", &width, bandwidth))...)
	var found []lb.FieldError
	*a, found = spec.Attributes(&declared)
	v.reportFieldErrors(found)
	a.LinkBandwidth = width
}

// accepted reads at least one prefix within which clients may announce.
func accepted(v value, to *[]bgp.Acceptance) { nonEmpty("prefix", list(readAcceptPrefix))(v, to) }

// readAcceptPrefix reads a prefix whose host routes are accepted, or a mapping with the
// shortest accepted prefix length.
func readAcceptPrefix(v value, a *bgp.Acceptance) {
	within := func(v value, to *netip.Prefix) {
		if prefix(v, to); to.IsValid() && to.Bits() == 0 {
			v.failf("%s would allow clients to announce any address", to)
		}
	}
	if _, ok := v.node.(*ast.MappingNode); !ok {
		within(v, &a.Prefix)
		a.Shortest = a.Prefix.Addr().BitLen()
		return
	}
	v.readFields(
		required("prefix", &a.Prefix, within),
		required("shortest", &a.Shortest, number[int](1, 128)),
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

func (c *Reflector) removes(next *Reflector) bool {
	return len(next.BGP.Clients) < len(c.BGP.Clients) || len(next.BGP.Routers) < len(c.BGP.Routers)
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
