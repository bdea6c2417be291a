// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// FileService translates a service of a configuration file. The errors have the paths of its
// fields. The service still has to be checked (lb.Service.Check); an error of a backend is at
// the index of the declaration.
func FileService(c *v1alpha1.FileService) (lb.Service, []lb.FieldError) {
	var errs []lb.FieldError
	f := fields{errs: &errs}
	s := lb.Service{
		Name: c.Name,
		VIP: lb.VIP{
			Address: f.address("address", c.Address), Port: f.port("port", c.Port), Protocol: lb.TCP, Segment: f.segment("segment", c.Segment),
		},
		AffinityTimeout: durationOf(c.AffinityTimeout), FirewallMark: uint32(c.FirewallMark),
		Sources: lb.Sources{Allow: f.prefixes("sources.allow", c.Sources.Allow), Deny: f.prefixes("sources.deny", c.Sources.Deny)},
	}
	if s.Segment.Type == lb.SegmentNone {
		s.Segment.Type = lb.SegmentUnset // one value for the untagged network
	}
	if s.Sources.Allow != nil && len(s.Sources.Allow) == 0 {
		// lb allows all sources then, an author may mean none.
		f.add("sources.allow", errors.New("empty list: omit it to allow all sources, deny 0.0.0.0/0 or ::/0 to allow none"))
	}
	f.word("protocol", c.Protocol, &s.Protocol)
	f.add("forward", s.Forward.UnmarshalText([]byte(c.Forward)))
	f.word("affinity", c.Affinity, &s.Affinity)
	f.word("tracking", c.Tracking, &s.Tracking)
	f.listener(&c.ListenerOptions, &s)
	f.pool(&c.PoolOptions, &s)
	if s.Learn = learn(&s); c.Learn != nil {
		s.Learn = c.Learn.Duration
	}
	if c.Health != nil {
		s.Health = f.in("health.").healthCheck(&c.Health.HealthCheck)
		s.Health.Body = c.Health.Body
	}
	s.Backends = make([]lb.Backend, len(c.Backends))
	for i := range c.Backends {
		b, at := &c.Backends[i], f.in(fmt.Sprintf("backends[%d].", i))
		s.Backends[i] = at.member(b.Address, cmp.Or(b.Port, c.Port), &b.MemberOptions)
		s.Backends[i].Node, s.Backends[i].Outside = at.address("node", b.Node), b.Outside
	}
	return s, errs
}
