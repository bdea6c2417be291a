// SPDX-License-Identifier: Apache-2.0

package file

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Reflector is what the configuration file of a route reflector says, with all
// defaults filled in.
type Reflector struct {
	// Name tells reflectors apart; the default is the host's.
	Name    string
	Observe Observe
	// BGP is sound: its ranges and its routers are distinct.
	BGP bgp.Reflection
	// Warnings are in the order of the file.
	Warnings []Warning
}

const (
	maxClients     = 4096
	maxRestartWait = 5 * time.Minute
)

// defaultReflectorListen differs from an agent's: both may run on one node.
func defaultReflectorListen() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9572)
}

// ParseReflector reads a reflector's configuration as Parse reads a node's.
func ParseReflector(name string, data []byte) (*Reflector, error) {
	d := &decoder{file: name}
	c := Reflector{Observe: Observe{Listen: defaultReflectorListen()}}
	if tree := d.parseTree(data); tree != nil {
		c.read(value{decoder: d, node: tree})
	}
	if d.sort(); len(d.errs) > 0 {
		return nil, d.errs
	}
	c.Warnings = d.warnings
	return &c, nil
}

func (c *Reflector) read(v value) {
	b := &c.BGP
	b.RestartWait = bgp.DefaultRestartWait
	v.readFields(
		required("reflector", c.readSelf),
		optional("listen", listenAt(&b.Listen)),
		required("clients", nonEmpty(&b.Clients, "range of clients", readRange)),
		required("routers", peers(&b.Routers)),
		required("accept", nonEmpty(&b.Accept, "prefix", readAcceptance)),
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
		optional("name", checked(text(&c.Name), func() error { return checkNodeName(c.Name) })),
		required("asn", number(&b.ASN, 1, bgp.MaxASN)),
		required("routerID", identifier(&b.RouterID, "router id")),
		optional("clusterID", identifier(&b.ClusterID, "cluster id")),
		optional("port", port(&b.Port)),
		optional("restartWait", checked(duration(&b.RestartWait), func() error {
			if b.RestartWait < 0 || b.RestartWait > maxRestartWait {
				return lb.OutOfRange(b.RestartWait, time.Duration(0), maxRestartWait)
			}
			return nil
		})),
	)
	if c.Name != "" || v.broken("name") {
		return
	}
	host, err := os.Hostname()
	c.Name = strings.ToLower(host)
	if err = errors.Join(err, checkNodeName(c.Name)); err != nil {
		v.at("name").failf("missing, and the host's own doesn't serve: %w", err)
	}
}

// listenAt reads addresses at which clients call; one may be that of all of its
// family.
func listenAt(to *[]netip.Addr) reader {
	return nonEmpty(to, "address", func(v value, one *netip.Addr) {
		var a netip.Addr
		address(&a)(v)
		switch {
		case !a.IsValid(): // address has reported it
		case a.IsMulticast() || a.Is4In6() || a.Zone() != "":
			v.failf("%s can't be listened at: want a unicast address without zone", a)
		case slices.Contains(*to, a):
			v.failf("%s is given twice", a)
		default:
			*one = a
		}
	})
}

// readRange leaves the ASN at 0 where it is not given: it is the reflector's then.
func readRange(v value, r *bgp.Range) {
	r.Most, r.HoldTime, r.RestartTime = bgp.DefaultMost, bgp.DefaultHoldTime, bgp.DefaultRestartTime
	v.readFields(
		required("prefix", func(v value) { prefix(v, &r.Prefix) }),
		optional("asn", number(&r.ASN, 1, bgp.MaxASN)),
		optional("most", number(&r.Most, 1, maxClients)),
		optional("ttlSecurity", number(&r.TTLSecurity, 1, math.MaxUint8-1)),
		optional("holdTime", holdTime(&r.HoldTime)),
		optional("restartTime", restartTime(&r.RestartTime)),
		optional("bfd", watched(&r.BFD)),
		optional("passwordFile", passwordFile(&r.Password)),
		optional("passwordEnv", passwordEnv(&r.Password)),
	)
	checkOnePassword(v, r.Password)
}

// readAcceptance reads a prefix of which host routes are accepted, or with it how
// short others may be.
func readAcceptance(v value, a *bgp.Acceptance) {
	within := func(v value) {
		if prefix(v, &a.Prefix); a.Prefix.IsValid() && a.Prefix.Bits() == 0 {
			v.failf("%s would let clients announce any address", a.Prefix)
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
	if v.broken("prefix", "shortest") {
		return
	}
	if low, high := a.Prefix.Bits(), a.Prefix.Addr().BitLen(); a.Shortest < low || a.Shortest > high {
		v.at("shortest").failf("%w", lb.OutOfRange(a.Shortest, low, high))
	}
}

// check refuses what can't be told apart.
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
		checkMultihop(v.at(fmt.Sprintf("routers[%d]", i)), &c.BGP.Routers[i], c.BGP.Local, v.broken("reflector.asn"))
	}
}

// checkReload returns a RestartError if a running reflector can't go from c to
// next.
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

func (c *Reflector) warned() []Warning { return c.Warnings }

func (c *Reflector) size() []any {
	return []any{"ranges", len(c.BGP.Clients), "routers", len(c.BGP.Routers), "accepted", len(c.BGP.Accept)}
}
