// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Peer translates a router, without its password. The errors have the paths of fields.
func Peer(o *v1alpha1.PeerOptions) (bgp.Peer, []lb.FieldError) {
	p, errs := Session(&o.SessionOptions)
	f := fields{errs: &errs}
	p.Address = f.address("address", v1alpha1.IPAddress(o.Address))
	if p.Address.IsValid() {
		f.add("address", CheckPeerAddress(p.Address))
	}
	if p.ASN = uint32(o.ASN); o.ASN < 1 || o.ASN > bgp.MaxASN {
		f.add("asn", lb.OutOfRange(o.ASN, 1, bgp.MaxASN))
	}
	p.Port = f.port("port", o.Port)
	p.Multihop, p.Passive = uint8(f.number("multihop", int64(o.Multihop), 2, math.MaxUint8)), o.Passive
	if p.Multihop != 0 && p.TTLSecurity != 0 {
		f.add("ttlSecurity", errors.New("not with multihop, which already limits the number of hops"))
	}
	if p.Passive && p.Port != 0 {
		f.add("port", errors.New("not with passive: the peer connects, not this node"))
	}
	return p, errs
}

// Session translates the options of a session, with a peer or a client of a reflector, and sets
// its defaults.
func Session(o *v1alpha1.SessionOptions) (p bgp.Peer, errs []lb.FieldError) {
	f := fields{errs: &errs}
	p.TTLSecurity = uint8(f.number("ttlSecurity", int64(o.TTLSecurity), 1, math.MaxUint8-1))
	p.HoldTime, p.RestartTime = bgp.DefaultHoldTime, bgp.DefaultRestartTime
	if o.HoldTime != nil {
		p.HoldTime = o.HoldTime.Duration
		f.add("holdTime", checkSeconds(p.HoldTime, bgp.MinHoldTime, bgp.MaxHoldTime, "for ever"))
	}
	if o.RestartTime != nil {
		p.RestartTime = o.RestartTime.Duration
		f.add("restartTime", checkSeconds(p.RestartTime, time.Second, bgp.MaxRestartTime, "for not at all"))
	}
	if o.BFD == (v1alpha1.BFD{}) || o.BFD.Enabled != nil && !*o.BFD.Enabled {
		return p, errs
	}
	b := bgp.DefaultBFD
	if o.BFD.Interval != nil {
		b.Interval = o.BFD.Interval.Duration
	}
	if b.Interval < bgp.MinBFDInterval || b.Interval > bgp.MaxBFDInterval {
		f.add("bfd.interval", lb.OutOfRange(b.Interval, bgp.MinBFDInterval, bgp.MaxBFDInterval))
	}
	b.Multiplier = cmp.Or(uint8(f.number("bfd.multiplier", int64(o.BFD.Multiplier), 1, math.MaxUint8)), b.Multiplier)
	if multihop := o.BFD.Multihop; multihop != nil && *multihop {
		b.Path = bgp.Multihop
	} else if multihop != nil {
		b.Path = bgp.SingleHop
	}
	p.BFD = &b
	return p, errs
}

// Announcement translates the announcement of addresses into a policy without prefixes.
func Announcement(o *v1alpha1.Announcement) (bgp.Policy, []lb.FieldError) {
	attributes, errs := Attributes(&o.RouteAttributes)
	if o.Prepend < 0 || o.Prepend > bgp.MaxPrepend {
		fields{errs: &errs}.add("prepend", lb.OutOfRange(o.Prepend, 0, bgp.MaxPrepend))
	}
	attributes.Prepend = int(o.Prepend)
	return bgp.Policy{Aggregate: o.Aggregate, Attributes: attributes}, errs
}

// Attributes translates attributes of routes.
func Attributes(o *v1alpha1.RouteAttributes) (a bgp.Attributes, errs []lb.FieldError) {
	f := fields{errs: &errs}
	for i, c := range o.Communities {
		if err := a.AddCommunity(string(c)); err != nil {
			f.add(fmt.Sprintf("communities[%d]", i), err)
		}
	}
	a.LocalPreference, a.MED = f.metric("localPreference", o.LocalPreference), f.metric("med", o.MED)
	return a, errs
}

// metric returns nil for none.
func (f fields) metric(name string, n *int64) *uint32 {
	if n == nil {
		return nil
	}
	if *n < 0 || *n > math.MaxUint32 {
		f.add(name, lb.OutOfRange(*n, 0, uint32(math.MaxUint32)))
	}
	return new(uint32(*n))
}

// number returns a number that is 0, which is the default, or within bounds.
func (f fields) number(name string, n, low, high int64) int64 {
	if n != 0 && (n < low || n > high) {
		f.add(name, lb.OutOfRange(n, low, high))
	}
	return n
}

// CheckPeerAddress allows loopback addresses, unlike lb.CheckAddress, for a router on
// the node itself. A link-local address would need a zone.
func CheckPeerAddress(a netip.Addr) error {
	if a.IsLoopback() {
		return nil
	}
	if a.IsLinkLocalUnicast() && a.Is6() {
		return fmt.Errorf("%s is a link-local address: want an address without zone", a)
	}
	return lb.CheckAddress(a)
}

// checkSeconds allows whole seconds in a range, or 0.
func checkSeconds(t, low, high time.Duration, zero string) error {
	switch {
	case t%time.Second != 0:
		return fmt.Errorf("%s is not a whole number of seconds", t)
	case t != 0 && (t < low || t > high):
		return fmt.Errorf("%s is out of range: want %s to %s, or 0s %s", t, low, high, zero)
	}
	return nil
}
