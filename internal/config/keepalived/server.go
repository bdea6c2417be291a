// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"math"
	"net/netip"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// maxWeight is IPVS_WEIGHT_LIMIT of keepalived.
const maxWeight = 65535

// readServer reads the block of a real server, or a sorry_server, which has none. It returns nil if its address isn't valid.
func (im *importer) readServer(v *virtual, s *statement) *server {
	address, err := netip.ParseAddr(s.word(1))
	if err != nil {
		im.report(s, "%s %q: left out: want an IPv4 or IPv6 address", s.keyword(), s.word(1))
		return nil
	}
	r := &server{statement: s, address: address, ownWeight: v.weight, forward: v.forward, probing: v.probing}
	if port := s.word(2); strings.Trim(port, "0") != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			im.report(s, "%s %s %q: left out: want a port from 1 to 65535", s.keyword(), address, port)
			return nil
		}
		r.port = uint16(n)
	}
	var checks []*statement
	for _, s := range s.body {
		switch keyword := s.keyword(); {
		case strings.HasSuffix(keyword, "_CHECK") || strings.HasSuffix(keyword, "_GET"):
			checks = append(checks, s)
		case im.readProbing(&r.probing, s):
		default:
			im.readServerKeyword(r, s)
		}
	}
	for _, s := range checks {
		r.checked = true
		c := im.readCheck(r, s)
		if c == nil {
			continue
		}
		if r.checks = append(r.checks, c); len(r.checks) > 1 {
			im.report(s, "%s: a backend has one check: that on line %d is used", s.keyword(), r.checks[0].Line)
		}
	}
	return r
}

func (im *importer) readServerKeyword(r *server, s *statement) {
	switch s.keyword() {
	case "weight":
		if n, ok := im.number(s, 0, maxWeight); ok {
			r.ownWeight = n
		}
	case "lvs_method", "lb_kind":
		r.forward = im.method(s, r.forward)
	case "uthreshold":
		if n, ok := im.number(s, 0, math.MaxUint32); ok {
			if r.maxConnections = min(n, lb.MaxConnections); n > lb.MaxConnections {
				im.report(s, "uthreshold %d: maxConnections is at most %d", n, lb.MaxConnections)
			}
		}
	case "inhibit_on_failure":
		if im.flag(s) {
			im.leftOut(s)
		}
	default:
		im.leftOut(s)
	}
}

// method reads a forwarding method and the options of its tunnel. Without a statement, or if
// it isn't valid, it is the given one.
func (im *importer) method(s *statement, otherwise lb.Forward) lb.Forward {
	if s == nil {
		return otherwise
	}
	switch s.word(1) {
	case "NAT":
		return lb.NAT
	case "DR":
		return lb.L2DSR
	case "TUN":
		return im.tunnel(s)
	}
	im.report(s, "%s %s: unknown method: %s is used", s.keyword(), s.word(1), otherwise)
	return otherwise
}

func (im *importer) tunnel(s *statement) lb.Forward {
	forward := lb.IPIP
	for i := 2; i < len(s.words); i++ {
		switch option := s.word(i); option {
		case "type":
			i++
			switch s.word(i) {
			case "ipip":
				forward = lb.IPIP
			case "gue":
				forward = lb.GUE
			default:
				im.report(s, "tunnel of type %s: there is no counterpart: ipip is used, for which backends need another device", s.word(i))
			}
		case "port":
			if i++; s.word(i) != "6080" {
				im.report(s, "tunnel to port %s: gue uses port 6080", s.word(i))
			}
		case "nocsum":
		default:
			im.report(s, "tunnel with %s: checksums are zero over IPv4 and correct over IPv6", option)
		}
	}
	return forward
}

// unifyMethods sets the virtual server's method to its first real server's, and reports real
// servers with another one.
func (im *importer) unifyMethods(v *virtual) {
	for i, r := range v.servers {
		if i == 0 {
			v.forward = r.forward
		}
		if r.forward != v.forward {
			im.report(r.statement, "%s %s: a service has one method: %s in place of %s", r.keyword(), r.address, v.forward, r.forward)
		}
	}
}

// scaleWeights reduces weights above the maximum, with the same proportions as far as whole
// numbers allow.
func (im *importer) scaleWeights(v *virtual) {
	largest := lb.MaxWeight
	for _, r := range v.servers {
		largest = max(largest, r.ownWeight)
	}
	for _, r := range v.servers {
		if r.weight = r.ownWeight * lb.MaxWeight / largest; r.ownWeight > 0 {
			r.weight = max(1, r.weight)
		}
		if r.weight != r.ownWeight {
			im.report(r.statement, "real_server %s: the weight %d becomes %d: weights are at most %d, and scaled", r.address, r.ownWeight, r.weight, lb.MaxWeight)
		}
	}
}
