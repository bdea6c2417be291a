// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// policies reads announcement policies, each for some prefixes.
func policies(v value, to *[]bgp.Policy) {
	before := map[uint16][]netip.Prefix{}
	list(func(v value, p *bgp.Policy) {
		var declared v1alpha1.Announcement
		var more bgp.Policy // fields that only files have
		v.readFields(append(declaredFields(v, &declared),
			required("prefixes", &more.Prefixes, nonEmpty("prefix", list(prefix))),
			optional("vlan", &more.VLAN, number[uint16](1, lb.MaxVLAN)),
			optional("nextHop4", &more.NextHop4, checked(address, lb.CheckAddress)),
			optional("nextHop6", &more.NextHop6, checked(address, lb.CheckAddress)),
			optional("linkBandwidth", &more.LinkBandwidth, bandwidth),
		)...)
		var found []lb.FieldError
		*p, found = spec.Announcement(&declared)
		v.reportFieldErrors(found)
		p.Prefixes, p.VLAN, p.NextHop4, p.NextHop6 = more.Prefixes, more.VLAN, more.NextHop4, more.NextHop6
		p.LinkBandwidth = more.LinkBandwidth
		checkPolicy(v, p)
		for i, one := range p.Prefixes {
			checkReached(v.at(fmt.Sprintf("prefixes[%d]", i)), one, before[p.VLAN])
			before[p.VLAN] = append(before[p.VLAN], one)
		}
	})(v, to)
}

// checkReached rejects a prefix without effect: the first prefix of a VLAN that contains a VIP
// decides, so none may lie within an earlier one.
func checkReached(v value, one netip.Prefix, before []netip.Prefix) {
	if at := slices.IndexFunc(before, func(b netip.Prefix) bool {
		return one.IsValid() && b.IsValid() && b.Bits() <= one.Bits() && b.Contains(one.Addr())
	}); at >= 0 {
		v.failf("%s has no effect: it lies within %s, which comes first", one, before[at])
	}
}

// checkPolicy rejects next hops of a family without prefix, VLANs without next hop, and
// aggregates that are default routes.
func checkPolicy(v value, p *bgp.Policy) {
	if v.at("prefixes").failedWithin() {
		return
	}
	has := func(four bool) bool {
		return slices.ContainsFunc(p.Prefixes, func(p netip.Prefix) bool { return p.IsValid() && p.Addr().Is4() == four })
	}
	all := func(p netip.Prefix) bool { return p.IsValid() && p.Bits() == 0 }
	switch {
	case p.NextHop4.IsValid() && !has(true):
		v.at("nextHop4").failf("the policy has no IPv4 prefix")
	case p.NextHop6.IsValid() && !has(false):
		v.at("nextHop6").failf("the policy has no IPv6 prefix")
	case p.NextHop6.Is4():
		v.at("nextHop6").failf("%s is an IPv4 address, which can't be the next hop of an IPv6 prefix", p.NextHop6)
	}
	for _, hop := range []struct {
		field string
		four  bool
		at    netip.Addr
	}{{"nextHop4", true, p.NextHop4}, {"nextHop6", false, p.NextHop6}} {
		if p.VLAN != 0 && has(hop.four) && !hop.at.IsValid() && !v.failedAny("vlan", hop.field) {
			v.at("vlan").failf("without %s: want the node's address in this VLAN, where the router sends packets", hop.field)
		}
	}
	if p.Aggregate && p.VLAN != 0 && !v.failedAny("vlan") {
		v.at("aggregate").failf("not with vlan: packets to unused addresses would be routed back into the VLAN")
	}
	if p.Aggregate && slices.ContainsFunc(p.Prefixes, all) {
		v.at("aggregate").failf("not with a prefix of length 0: it would be a default route")
	}
}

// maxBandwidth keeps the announced value far from the limits of a 32-bit floating-point
// number; no link is so fast.
const maxBandwidth = 1e18

// bandwidth reads bits a second, of which it makes bytes: a number, or one with
// a decimal prefix.
func bandwidth(v value, to *float32) {
	s, isText := "", false
	switch n := v.node.(type) {
	case *ast.StringNode:
		s, isText = n.Value, true
	case *ast.IntegerNode:
		s = n.GetToken().Value
	}
	bits, err := parseBandwidth(s)
	switch {
	case err == nil:
		*to = float32(bits / 8)
	case isText:
		v.failf("bad bandwidth %q: %w", s, err)
	default:
		v.unexpected(bandwidthWant)
	}
}

const bandwidthWant = "bits per second, such as 10G or 400M"

func parseBandwidth(s string) (bits float64, err error) {
	const factors = "kMGT"
	factor := 1.0
	if n := len(s); n > 0 {
		if at := strings.IndexByte(factors, s[n-1]); at >= 0 {
			s, factor = s[:n-1], math.Pow10(3*(at+1))
		}
	}
	plain := s != "" && strings.Trim(s, "0123456789.") == ""
	bits, err = strconv.ParseFloat(s, 64)
	if bits *= factor; !plain || err != nil || bits < 8 || bits > maxBandwidth {
		return 0, errors.New("want " + bandwidthWant)
	}
	return bits, nil
}
