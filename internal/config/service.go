// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"math"
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// serviceIndex finds duplicate names and VIPs.
type serviceIndex struct {
	names map[string]int // line of each service
	vips  map[lb.VIP]vipOwner
}

// vipOwner is the service with a VIP.
type vipOwner struct {
	name string
	line int
}

func newServiceIndex() *serviceIndex {
	return &serviceIndex{names: make(map[string]int), vips: make(map[lb.VIP]vipOwner)}
}

// readService reads and checks one service.
func (c *serviceIndex) readService(v value, s *lb.Service) {
	*s = lb.Service{VIP: lb.VIP{Protocol: lb.TCP}, MinHealthy: 1}
	learn := false
	v.readFields(
		required("name", text(&s.Name)),
		required("address", address(&s.Address)),
		required("port", port(&s.Port)),
		optional("protocol", textUnmarshaler(&s.Protocol)),
		optional("segment", segment(&s.Segment)),
		required("forward", textUnmarshaler(&s.Forward)),
		optional("affinity", textUnmarshaler(&s.Affinity)),
		optional("affinityTimeout", duration(&s.AffinityTimeout)),
		optional("quic", quic(&s.QUIC)),
		optional("tracking", textUnmarshaler(&s.Tracking)),
		optional("idleTimeout", duration(&s.IdleTimeout)),
		optional("learn", func(v value) {
			learn = true
			duration(&s.Learn)(v)
		}),
		optional("unavailable", textUnmarshaler(&s.Unavailable)),
		optional("minHealthy", number(&s.MinHealthy, 1, math.MaxUint16)),
		optional("health", health(&s.Health)),
		optional("limits", limits(&s.Limits)),
		optional("sources", sources(&s.Sources)),
		required("backends", list(&s.Backends, readBackend)),
	)
	if s.Segment.Type == lb.SegmentNone {
		s.Segment.Type = lb.SegmentUnset // one value for the untagged network
	}
	if s.Protocol == lb.UDP && !learn {
		s.Learn = lb.DefaultLearn
	}
	for i := range s.Backends {
		s.Backends[i].Port = cmp.Or(s.Backends[i].Port, s.Port)
	}
	v.reportFieldErrors(s.Check())
	v.reportFieldErrors(v.limits.Check(s))
	c.add(v, s)
}

// add reports a duplicate name or VIP.
func (c *serviceIndex) add(v value, s *lb.Service) {
	line := position(v.node).Line
	if other, taken := c.names[s.Name]; taken {
		v.at("name").failf("%q is already the name of the service on line %d", s.Name, other)
	} else if s.Name != "" {
		c.names[s.Name] = line
	}
	if v.failedAny("address", "port", "protocol", "segment", "segment.type", "segment.id") {
		return
	}
	if other, taken := c.vips[s.VIP]; taken {
		v.at("address").failf("%s is already the VIP of service %q on line %d", s.VIP, other.name, other.line)
		return
	}
	c.vips[s.VIP] = vipOwner{name: cmp.Or(s.Name, v.path), line: line}
}

// readBackend leaves the port at 0 if it is not given: readService replaces it by the
// service's port, which may be read later.
func readBackend(v value, b *lb.Backend) {
	b.Weight = 1
	v.readFields(
		required("address", address(&b.Address)),
		optional("port", port(&b.Port)),
		optional("weight", number(&b.Weight, 0, lb.MaxWeight)),
		optional("node", address(&b.Node)),
		optional("outside", flag(&b.Outside)),
		optional("tunnelEnd", address(&b.TunnelEnd)),
		optional("mac", textUnmarshaler(&b.MAC)),
		optional("segment", segment(&b.Segment)),
		optional("serverID", textUnmarshaler(&b.ServerID)),
	)
}

// limits reads rate limits of new flows. 0 is rejected, as it is ambiguous: internally
// it means no limit, an author may mean no flows.
func limits(to *lb.FlowLimits) reader {
	return func(v value) {
		v.readFields(
			optional("newFlows", number(&to.NewFlows, 1, lb.MaxNewFlows)),
			optional("newFlowsPerSource", number(&to.NewFlowsPerSource, 1, lb.MaxNewFlows)),
		)
	}
}

// quic reads the format of QUIC connection IDs. Bounds that depend on each other are
// checked by lb.
func quic(to **lb.QUIC) reader {
	return func(v value) {
		q := &lb.QUIC{}
		v.readFields(
			optional("configID", number(&q.ConfigID, 0, lb.MaxQUICConfig)),
			required("serverIDLength", number(&q.ServerIDLength, 1, lb.MaxServerIDLength)),
			required("nonceLength", number(&q.NonceLength, 0, 255)),
		)
		*to = q
	}
}

// segment reads a virtual network. The range of IDs is checked by lb.
func segment(to *lb.Segment) reader {
	return func(v value) {
		v.readFields(
			required("type", textUnmarshaler(&to.Type)),
			optional("id", number(&to.ID, 0, math.MaxUint32)),
		)
	}
}

// sources reads the source prefixes that are allowed and denied.
func sources(to *lb.Sources) reader {
	return func(v value) {
		v.readFields(
			optional("allow", allowed(&to.Allow)),
			optional("deny", list(&to.Deny, prefix)),
		)
	}
}

// allowed reads the allowed prefixes. An empty list is rejected, as it is ambiguous:
// internally it allows all sources, an author may mean none.
func allowed(to *[]netip.Prefix) reader {
	return func(v value) {
		list(to, prefix)(v)
		if *to != nil && len(*to) == 0 {
			v.failf("empty list: omit it to allow all sources, deny 0.0.0.0/0 or ::/0 to allow none")
		}
	}
}
