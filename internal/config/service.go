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

func newServiceIndex() serviceIndex {
	return serviceIndex{names: map[string]int{}, vips: map[lb.VIP]vipOwner{}}
}

// vipOwner is the service with a VIP.
type vipOwner struct {
	name string
	line int
}

// readService reads and checks one service.
func (c serviceIndex) readService(v value, s *lb.Service) {
	*s = lb.Service{VIP: lb.VIP{Protocol: lb.TCP}, MinHealthy: 1}
	v.readFields(
		required("name", &s.Name, text),
		required("address", &s.Address, address),
		required("port", &s.Port, port),
		optional("protocol", &s.Protocol, textUnmarshaler),
		optional("segment", &s.Segment, segment),
		required("forward", &s.Forward, textUnmarshaler),
		optional("affinity", &s.Affinity, textUnmarshaler),
		optional("affinityTimeout", &s.AffinityTimeout, duration),
		optional("scheduler", &s.Scheduler, textUnmarshaler),
		optional("firewallMark", &s.FirewallMark, number[uint32](1, math.MaxUint32)),
		optional("quic", &s.QUIC, pointer(quic)),
		optional("tracking", &s.Tracking, textUnmarshaler),
		optional("idleTimeout", &s.IdleTimeout, duration),
		optional("learn", &s.Learn, duration),
		optional("ephemeral", &s.Ephemeral, flag),
		optional("unavailable", &s.Unavailable, textUnmarshaler),
		optional("minHealthy", &s.MinHealthy, number[int](1, math.MaxUint16)),
		optional("health", &s.Health, pointer(health)),
		optional("limits", &s.Limits, limits),
		optional("sources", &s.Sources, sources),
		required("backends", &s.Backends, list(readBackend)),
	)
	if s.Segment.Type == lb.SegmentNone {
		s.Segment.Type = lb.SegmentUnset // one value for the untagged network
	}
	if s.Protocol == lb.UDP && !v.has("learn") {
		s.Learn = lb.DefaultLearn
	}
	for i := range s.Backends {
		s.Backends[i].Port = cmp.Or(s.Backends[i].Port, s.Port)
	}
	v.reportFieldErrors(s.Check())
	// A file has all backends of a service. Other sources may add more later.
	if n := len(s.Backends); n > 0 && s.MinHealthy > n {
		v.at("minHealthy").failf("%d is more than the service's %d backends", s.MinHealthy, n)
	}
	v.reportFieldErrors(v.limits.Check(s))
	c.add(v, s)
	s.Backends = lb.SortBackends(s.Backends) // as the store has them, which then shares them
}

// add reports a duplicate name or VIP.
func (c serviceIndex) add(v value, s *lb.Service) {
	line := v.part.line(position(v.node).Line)
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
		required("address", &b.Address, address),
		optional("port", &b.Port, port),
		optional("monitorAddress", &b.MonitorAddress, address),
		optional("monitorPort", &b.MonitorPort, port),
		optional("weight", &b.Weight, number[int](0, lb.MaxWeight)),
		optional("backup", &b.Backup, flag),
		optional("maxConnections", &b.MaxConnections, number[int](1, lb.MaxConnections)),
		optional("node", &b.Node, address),
		optional("outside", &b.Outside, flag),
		optional("tunnelEnd", &b.TunnelEnd, address),
		optional("mac", &b.MAC, textUnmarshaler),
		optional("segment", &b.Segment, segment),
		optional("serverID", &b.ServerID, textUnmarshaler),
	)
}

// limits reads rate limits of new flows. 0 is rejected, as it is ambiguous: internally
// it means no limit, an author may mean no flows.
func limits(v value, to *lb.FlowLimits) {
	v.readFields(
		optional("newFlows", &to.NewFlows, number[int](1, lb.MaxNewFlows)),
		optional("newFlowsPerSource", &to.NewFlowsPerSource, number[int](1, lb.MaxNewFlows)),
	)
}

// quic reads the format of QUIC connection IDs. Bounds that depend on each other are
// checked by lb.
func quic(v value, q *lb.QUIC) {
	v.readFields(
		optional("configID", &q.ConfigID, number[int](0, lb.MaxQUICConfig)),
		required("serverIDLength", &q.ServerIDLength, number[int](1, lb.MaxServerIDLength)),
		required("nonceLength", &q.NonceLength, number[int](0, 255)),
	)
}

// segment reads a virtual network. The range of IDs is checked by lb.
func segment(v value, to *lb.Segment) {
	v.readFields(
		required("type", &to.Type, textUnmarshaler),
		optional("id", &to.ID, number[uint32](0, math.MaxUint32)),
	)
}

// sources reads the source prefixes that are allowed and denied.
func sources(v value, to *lb.Sources) {
	v.readFields(
		optional("allow", &to.Allow, allowed),
		optional("deny", &to.Deny, list(prefix)),
	)
}

// allowed reads the allowed prefixes. An empty list is rejected, as it is ambiguous:
// internally it allows all sources, an author may mean none.
func allowed(v value, to *[]netip.Prefix) {
	if list(prefix)(v, to); *to != nil && len(*to) == 0 {
		v.failf("empty list: omit it to allow all sources, deny 0.0.0.0/0 or ::/0 to allow none")
	}
}
