// SPDX-License-Identifier: Apache-2.0

// Package spec translates specifications of the API into load-balancer services: those
// of LoadBalancers, Fairlead's annotations of Services, and health checks; and what a
// node reports into its status. The sources that follow an API server, the controller
// and the API server call it, so that all of them read an object in the same way.
package spec

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// LoadBalancer returns one service for each enabled listener of a LoadBalancer with
// that address, and what is wrong with the others. The services still have to be
// checked (lb.Service.Check).
func LoadBalancer(b *v1alpha1.LoadBalancer, address netip.Addr) (services []lb.Service, problems []string) {
	if n := b.Spec.FirewallMark; n < 0 || n > math.MaxUint32 {
		return nil, []string{fmt.Sprintf("spec.firewallMark: %v", lb.OutOfRange(n, 1, math.MaxUint32))}
	}
	t := &translation{}
	for i := range b.Spec.Listeners {
		l := &b.Spec.Listeners[i]
		pool := &v1alpha1.Pool{} // of a listener that has none yet
		if at := slices.IndexFunc(b.Spec.Pools, func(p v1alpha1.Pool) bool { return p.Name == l.Pool }); at >= 0 {
			pool = &b.Spec.Pools[at]
		}
		switch {
		case l.Enabled != nil && !*l.Enabled:
		case pool.Name != l.Pool:
			t.fail("listener %s: pool %s is missing", l.Name, l.Pool)
		default:
			t.listener(l, pool, cmp.Or(pool.Forward, b.Spec.Forward), lb.Service{
				Name:         ListenerName(b, l.Name),
				VIP:          lb.VIP{Address: address, Port: uint16(l.Port), Protocol: lb.TCP, Segment: segmentOf(b.Spec.Segment)},
				FirewallMark: uint32(b.Spec.FirewallMark), MinHealthy: cmp.Or(int(pool.MinHealthy), 1),
			})
		}
	}
	return t.services, t.problems
}

// translation collects the services and problems of one LoadBalancer.
type translation struct {
	services []lb.Service
	problems []string
}

// fail adds a problem once.
func (t *translation) fail(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.problems, text) {
		t.problems = append(t.problems, text)
	}
}

// listener adds the service of a listener and its pool.
func (t *translation) listener(l *v1alpha1.Listener, p *v1alpha1.Pool, forward string, s lb.Service) {
	if err := s.Forward.UnmarshalText([]byte(forward)); err != nil {
		t.fail("listener %s: forward: %v", l.Name, err)
		return
	}
	if l.Protocol == "UDP" {
		s.Protocol = lb.UDP
	}
	if l.Port < 1 || l.Port > math.MaxUint16 {
		t.fail("listener %s: port: %v", l.Name, lb.OutOfRange(l.Port, 1, math.MaxUint16))
		return
	}
	if p.SessionAffinity == "ClientIP" {
		s.Affinity = lb.AffinityClient
		s.AffinityTimeout = durationOf(p.SessionAffinityTimeout)
	}
	if l.QUIC != nil {
		if s.Affinity != lb.AffinityFlow {
			t.fail("listener %s: quic: not with sessionAffinity %s of pool %s", l.Name, p.SessionAffinity, p.Name)
			return
		}
		s.Affinity = lb.AffinityQUIC
		s.QUIC = &lb.QUIC{ConfigID: int(l.QUIC.ConfigID), ServerIDLength: int(l.QUIC.ServerIDLength), NonceLength: int(l.QUIC.NonceLength)}
	}
	s.IdleTimeout = durationOf(l.IdleTimeout)
	if l.Unavailable != "" {
		if err := s.Unavailable.UnmarshalText([]byte(l.Unavailable)); err != nil {
			t.fail("listener %s: unavailable: %v", l.Name, err)
			return
		}
	}
	if p.Scheduler != "" {
		if err := s.Scheduler.UnmarshalText([]byte(p.Scheduler)); err != nil {
			t.fail("pool %s: scheduler: %v", p.Name, err)
			return
		}
	}
	sources, errs := Sources(l.SourceRanges, s.Address)
	s.Sources = sources
	for _, err := range errs {
		t.fail("listener %s: sourceRanges%v", l.Name, err)
	}
	s.Limits = Limits(l.Limits)
	health, err := HealthCheck(p.HealthCheck)
	if err != nil {
		t.fail("pool %s: healthCheck: %v", p.Name, err)
		return
	}
	for i := range p.Members {
		if enabled := p.Members[i].Enabled; enabled != nil && !*enabled {
			continue
		}
		if m, err := member(&p.Members[i]); err != nil {
			t.fail("pool %s: member %s: %v", p.Name, p.Members[i].Address, err)
		} else {
			if s.QUIC == nil {
				m.ServerID = "" // for other listeners
			}
			m.MaxConnections = cmp.Or(m.MaxConnections, int(p.MaxConnections))
			s.Backends = append(s.Backends, m)
		}
	}
	SetDefaults(&s, health)
	t.services = append(t.services, s)
}

// durationOf returns 0 for nil.
func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// Sources returns the prefixes of the address's family as allowed sources. If there are
// prefixes but none of this family, or no valid one, all sources are denied. Errors
// begin with the prefix's index.
func Sources(prefixes []string, address netip.Addr) (s lb.Sources, errs []error) {
	known := make(map[netip.Prefix]bool, len(prefixes))
	for i, text := range prefixes {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil || p.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("[%d]: invalid prefix %q ignored", i, text))
		case p.Addr().Is4() == address.Is4() && !known[p.Masked()]:
			known[p.Masked()] = true
			s.Allow = append(s.Allow, p.Masked())
		}
	}
	if len(prefixes) > 0 && len(s.Allow) == 0 {
		s.Deny = []netip.Prefix{netip.PrefixFrom(address, 0).Masked()}
	}
	return s, errs
}

// Limits translates limits of new flows.
func Limits(l v1alpha1.FlowLimits) lb.FlowLimits {
	return lb.FlowLimits{NewFlows: int(l.NewFlows), NewFlowsPerSource: int(l.NewFlowsPerSource)}
}

// SetDefaults sets what follows from the mode and the protocol: mode nat learns no
// flows, as it has a session for each. A check over TCP is used for a UDP service, and one over
// UDP for a TCP service, only if it or each backend has a port of its own.
func SetDefaults(s *lb.Service, health *lb.HealthCheck) {
	if s.Protocol == lb.UDP && s.Forward != lb.NAT {
		s.Learn = lb.DefaultLearn
	}
	if health == nil {
		return
	}
	ownPort := health.Port != 0 || len(s.Backends) > 0 && !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.MonitorPort == 0 })
	if p := health.Type.Protocol(); p == 0 || p == s.Protocol || ownPort {
		s.Health = health
	}
}

func member(m *v1alpha1.Member) (b lb.Backend, err error) {
	if b.Address, err = netip.ParseAddr(string(m.Address)); err != nil {
		return b, err
	}
	if m.Port < 1 || m.Port > math.MaxUint16 {
		return b, lb.OutOfRange(m.Port, 1, math.MaxUint16)
	}
	if m.MonitorAddress != "" {
		if b.MonitorAddress, err = netip.ParseAddr(string(m.MonitorAddress)); err != nil {
			return b, fmt.Errorf("monitorAddress: %w", err)
		}
	}
	if m.MonitorPort < 0 || m.MonitorPort > math.MaxUint16 {
		return b, fmt.Errorf("monitorPort: %w", lb.OutOfRange(m.MonitorPort, 1, math.MaxUint16))
	}
	b.MonitorPort = uint16(m.MonitorPort)
	b.Port, b.Weight, b.Segment = uint16(m.Port), 1, segmentOf(m.Segment)
	b.Backup, b.MaxConnections = m.Backup, int(m.MaxConnections)
	if m.Weight != nil {
		b.Weight = int(*m.Weight)
	}
	if m.ServerID != "" {
		if err := b.ServerID.UnmarshalText([]byte(m.ServerID)); err != nil {
			return b, err
		}
	}
	if m.MAC != "" {
		if err := b.MAC.UnmarshalText([]byte(m.MAC)); err != nil {
			return b, err
		}
	}
	if m.TunnelEnd != "" {
		b.TunnelEnd, err = netip.ParseAddr(string(m.TunnelEnd))
	}
	return b, err
}

// segmentOf returns the zero Segment for nil, and one that lb.Service.Check rejects for
// an invalid one.
func segmentOf(s *v1alpha1.Segment) (segment lb.Segment) {
	if s == nil {
		return segment
	}
	if segment.Type.UnmarshalText([]byte(s.Type)) != nil || s.ID < 0 || s.ID > math.MaxUint32 {
		return lb.Segment{Type: math.MaxUint8}
	}
	segment.ID = uint32(s.ID)
	return segment
}

// Servable returns a service without the backends that a check refuses, what the check found, and
// whether the service can be served.
func Servable(s lb.Service, check func(*lb.Service) []lb.FieldError) (_ lb.Service, found []lb.FieldError, valid bool) {
	found = check(&s)
	bad := map[int]bool{}
	for _, f := range found {
		var i int
		if n, _ := fmt.Sscanf(f.Path, "backends[%d]", &i); n == 1 {
			bad[i] = true
		}
	}
	if len(bad) == 0 {
		return s, found, len(found) == 0
	}
	good := make([]lb.Backend, 0, len(s.Backends))
	for i, b := range s.Backends {
		if !bad[i] {
			good = append(good, b)
		}
	}
	s.Backends = good
	return s, found, len(check(&s)) == 0
}

// CheckOnNode returns the errors of a service on a node whose data plane has these limits, and that
// has tunnel end points or none.
func CheckOnNode(s *lb.Service, limits dataplane.Limits, tunnelEnds bool) []lb.FieldError {
	found := s.Check()
	uncounted := false
	for _, f := range limits.Check(s) {
		// It refuses the service: without the backends others would get their connections.
		if strings.HasSuffix(f.Path, "].maxConnections") {
			if uncounted {
				continue
			}
			uncounted, f.Path = true, "maxConnections"
		}
		found = append(found, f)
	}
	if s.Segment.Overlay() && !tunnelEnds {
		found = append(found, lb.FieldError{
			Path: "segment", Err: fmt.Errorf("%s frames need a tunnel end point, this node's agent has none", s.Segment.Type),
		})
	}
	return found
}

// PartError says why a listener of a LoadBalancer, or a member of its pool, can't be
// served by any node.
type PartError struct {
	Listener, Pool string
	// Member is the member's address and port; empty for an error of the listener.
	Member string
	Text   string
}

// CheckLoadBalancer returns the errors of all listeners of a LoadBalancer with that
// address, in a group with a policy, nil for no group.
func CheckLoadBalancer(b *v1alpha1.LoadBalancer, address netip.Addr, policy *Policy, n *Networks) (errs []PartError) {
	for i, l := range b.Spec.Listeners {
		one := *b
		one.Spec.Listeners = b.Spec.Listeners[i : i+1]
		services, texts := LoadBalancer(&one, address)
		var found []PartError
		for _, s := range services {
			found = checkService(s, policy, n)
		}
		for _, text := range texts {
			found = append(found, PartError{Text: text})
		}
		for _, p := range found {
			p.Listener, p.Pool = l.Name, l.Pool
			errs = append(errs, p)
		}
	}
	return errs
}

// checkService returns the errors of a service, those of backends as errors of members.
func checkService(s lb.Service, policy *Policy, n *Networks) (found []PartError) {
	errs := s.Check()
	if policy != nil {
		errs = append(errs, policy.Check(&s, n)...)
	}
	for _, f := range errs {
		p := PartError{Text: f.Error()}
		var at int
		if n, _ := fmt.Sscanf(f.Path, "backends[%d]", &at); n == 1 {
			member := s.Backends[at]
			p.Member = netip.AddrPortFrom(member.Address, member.Port).String()
			_, p.Text, _ = strings.Cut(p.Text, "]")
			p.Text = strings.TrimLeft(p.Text, ".: ")
		}
		found = append(found, p)
	}
	return found
}
