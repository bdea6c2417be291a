// SPDX-License-Identifier: Apache-2.0

package file

import (
	"cmp"
	"math"

	"fairlead.io/fairlead/internal/lb"
)

// catalogue knows the services that have been read, to find the second of two
// that can't both be.
type catalogue struct {
	names map[string]int // line of the service
	vips  map[lb.VIP]owner
}

// owner is the service that has a VIP.
type owner struct {
	name string
	line int
}

func newCatalogue() *catalogue {
	return &catalogue{names: make(map[string]int), vips: make(map[lb.VIP]owner)}
}

// readService reads one service and everything that can be said against it.
func (c *catalogue) readService(v value, s *lb.Service) {
	*s = lb.Service{VIP: lb.VIP{Protocol: lb.TCP}, MinHealthy: 1}
	learn := false
	v.readFields(
		required("name", text(&s.Name)),
		required("address", address(&s.Address)),
		required("port", port(&s.Port)),
		optional("protocol", word(&s.Protocol)),
		optional("segment", segment(&s.Segment)),
		required("forward", word(&s.Forward)),
		optional("affinity", word(&s.Affinity)),
		optional("affinityTimeout", duration(&s.AffinityTimeout)),
		optional("quic", quic(&s.QUIC)),
		optional("tracking", word(&s.Tracking)),
		optional("idleTimeout", duration(&s.IdleTimeout)),
		optional("learn", func(v value) {
			learn = true
			duration(&s.Learn)(v)
		}),
		optional("unavailable", word(&s.Unavailable)),
		optional("minHealthy", number(&s.MinHealthy, 1, math.MaxUint16)),
		optional("health", health(&s.Health)),
		optional("limits", limits(&s.Limits)),
		optional("sources", sources(&s.Sources)),
		required("backends", list(&s.Backends, readBackend)),
	)
	if s.Segment.Type == lb.SegmentNone {
		s.Segment.Type = lb.SegmentUnset // the untagged network has one name
	}
	if s.Protocol == lb.UDP && !learn {
		s.Learn = lb.DefaultLearn
	}
	for i := range s.Backends {
		s.Backends[i].Port = cmp.Or(s.Backends[i].Port, s.Port)
	}
	v.report(s.Check())
	v.report(v.limits.Check(s))
	c.add(v, s)
}

// add reports a service that takes another one's name or VIP.
func (c *catalogue) add(v value, s *lb.Service) {
	line := position(v.node).Line
	if other, taken := c.names[s.Name]; taken {
		v.at("name").failf("%q is already the name of the service on line %d", s.Name, other)
	} else if s.Name != "" {
		c.names[s.Name] = line
	}
	if v.broken("address", "port", "protocol", "segment", "segment.type", "segment.id") {
		return
	}
	if other, taken := c.vips[s.VIP]; taken {
		v.at("address").failf("%s is already the VIP of service %q on line %d", s.VIP, other.name, other.line)
		return
	}
	c.vips[s.VIP] = owner{name: cmp.Or(s.Name, v.path), line: line}
}
