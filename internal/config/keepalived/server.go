// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"math"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// maxWeight is IPVS_WEIGHT_MAX of keepalived.
const maxWeight = math.MaxInt32

// server is a real_server, or a sorry_server, which has no block.
type server struct {
	*statement
	address netip.Addr
	// port is 0 for the virtual server's.
	port uint16
	// weight is ownWeight, the file's, or scaled to lb.MaxWeight. ownWeight is -1 for the
	// virtual server's.
	weight, ownWeight int
	maxConnections    int
	// backup is a sorry_server.
	backup bool
	method method
	probing
	// checks have a counterpart; checked is set if the file has any check at all.
	checks  []*check
	checked bool
}

// newServer reads the address and the port of a server; it returns nil if they aren't valid.
func (v *virtual) newServer(s *statement) *server {
	address, ok := s.address(1)
	if !ok {
		return nil
	}
	port, ok := s.port(2)
	if !ok {
		return nil
	}
	return &server{statement: s, address: address, port: port, ownWeight: -1, method: v.method}
}

func (x *reader) realServer(s *statement) {
	r := x.v.newServer(s)
	if r == nil {
		return
	}
	inner := &reader{importer: x.importer, v: x.v, r: r, probing: &r.probing}
	if inner.block("real_server", s); !x.v.sameFamily(r) {
		return
	}
	for _, other := range x.v.servers {
		if other.address == r.address && other.port == r.port {
			s.report("%s %s: left out, as by keepalived: line %d has it already", s.keyword(), r.address, other.Line)
			return
		}
	}
	x.v.servers = append(x.v.servers, r)
}

// sorryServer reads a sorry_server. A later one replaces it.
func (v *virtual) sorryServer(s *statement) {
	if r := v.newServer(s); r != nil {
		r.backup, r.ownWeight = true, 1
		v.sorry = r
	}
}

func (v *virtual) sorryMethod(s *statement) {
	if v.sorryInhibit(s); v.sorry != nil {
		v.sorry.method.read(s)
	}
}

// sorryInhibit reports a statement without a sorry_server in front of it.
func (v *virtual) sorryInhibit(s *statement) {
	if v.sorry == nil {
		s.report("%s: keepalived ignores it: there is no sorry_server before it", s.keyword())
	}
}

// endServer completes a server with the settings that it inherits from its virtual server.
func (v *virtual) endServer(r *server) {
	if r.ownWeight < 0 {
		r.ownWeight = v.weight
	}
	r.probing.inherit(&v.probing)
	for _, c := range r.checks {
		c.probing.inherit(&r.probing)
		c.end()
	}
}

func (r *server) upperThreshold(s *statement) {
	if n, ok := s.number(1, 0, math.MaxUint32, true); ok {
		if r.maxConnections = min(n, lb.MaxConnections); n > lb.MaxConnections {
			s.report("uthreshold %d: maxConnections is at most %d", n, lb.MaxConnections)
		}
	}
}

// inhibit reports a real server that keeps its flows when it fails.
func (x *reader) inhibit(s *statement) {
	var on *bool
	if truth(func(*reader) **bool { return &on })(x, s); on != nil && *on {
		s.report("%s: %s", s.keyword(), noInhibit)
	}
}

// method is a forwarding method with its tunnel; kind is empty if the file has none.
type method struct{ kind, tunnel string }

func (m *method) inherit(from *method) {
	if m.kind == "" {
		*m = *from
	}
}

// forward returns the method's counterpart; NAT is keepalived's default.
func (m *method) forward() lb.Forward {
	switch {
	case m.kind == "DR":
		return lb.L2DSR
	case m.kind == "TUN" && m.tunnel == "gue":
		return lb.GUE
	case m.kind == "TUN":
		return lb.IPIP
	default:
		return lb.NAT
	}
}

// read reads a method. keepalived ignores the options of a tunnel if one of them isn't
// valid.
func (m *method) read(s *statement) {
	if !slices.Contains([]string{"NAT", "DR", "TUN"}, s.word(1)) {
		s.report("%s %s: keepalived ignores it: it knows NAT, DR and TUN", s.keyword(), s.word(1))
		return
	}
	m.kind = s.word(1)
	tunnel, port, checksum, valid := "ipip", 0, "nocsum", true
	for i := 2; i < len(s.words) && valid; i++ {
		switch option := s.word(i); option {
		case "type":
			i++
			tunnel = s.word(i)
			valid = slices.Contains([]string{"ipip", "gue", "gre"}, tunnel)
		case "port":
			i++
			port, valid = s.number(i, 1, math.MaxUint16, false)
		case "nocsum", "csum", "remcsum":
			checksum = option
		default:
			valid = false
		}
	}
	if !valid || (tunnel == "gue") != (port != 0) || tunnel == "ipip" && checksum != "nocsum" ||
		tunnel == "gre" && checksum == "remcsum" {
		s.report("%s: keepalived ignores these options of a tunnel: gue needs a port, ipip has no checksum", s.keyword())
		return
	}
	if m.tunnel = tunnel; m.kind != "TUN" {
		return
	}
	if tunnel == "gre" {
		s.report("tunnel of type gre: there is no counterpart: ipip is used, for which backends need another device")
	}
	if port != 0 && port != 6080 {
		s.report("tunnel to port %d: gue uses port 6080", port)
	}
	if checksum != "nocsum" {
		s.report("tunnel with %s: checksums are zero over IPv4 and correct over IPv6", checksum)
	}
}

// unifyMethods sets the service's method to its first real server's, and reports servers with
// another one.
func (v *virtual) unifyMethods() {
	v.forward = v.servers[0].method.forward()
	for _, r := range v.servers {
		if f := r.method.forward(); f != v.forward {
			r.report("%s %s: a service has one method: %s in place of %s", r.keyword(), r.address, v.forward, f)
		}
	}
}

// scaleWeights reduces weights above the maximum, with the same proportions as far as whole
// numbers allow.
func (v *virtual) scaleWeights() {
	largest := lb.MaxWeight
	for _, r := range v.servers {
		largest = max(largest, r.ownWeight)
	}
	for _, r := range v.servers {
		if r.weight = r.ownWeight * lb.MaxWeight / largest; r.ownWeight > 0 {
			r.weight = max(1, r.weight)
		}
		if r.weight != r.ownWeight {
			r.report("real_server %s: the weight %d becomes %d: weights are at most %d, and scaled", r.address, r.ownWeight, r.weight, lb.MaxWeight)
		}
	}
}
