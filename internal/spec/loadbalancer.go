// SPDX-License-Identifier: Apache-2.0

// Package spec translates declarations of the API into load-balancer services and BGP
// peers, with their defaults: objects, Fairlead's annotations of Services, and services
// and peers of configuration files; and reports of nodes into statuses. Sources,
// the configuration, the controller and the API server call it, so that all of them read
// a declaration in the same way.
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
// this address, and the problems of the others. The services still have to be checked
// (lb.Service.Check).
func LoadBalancer(b *v1alpha1.LoadBalancer, address netip.Addr) (services []lb.Service, problems []string) {
	if n := b.Spec.FirewallMark; n < 0 || n > math.MaxUint32 {
		return nil, []string{fmt.Sprintf("spec.firewallMark: %v", lb.OutOfRange(n, 1, math.MaxUint32))}
	}
	t := &translation{}
	segment := t.fields("spec.").segment("segment", b.Spec.Segment)
	if t.failed() {
		return nil, t.problems
	}
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
				VIP:          lb.VIP{Address: address, Protocol: lb.TCP, Segment: segment},
				FirewallMark: uint32(b.Spec.FirewallMark),
			})
		}
	}
	return t.services, t.problems
}

// translation collects the services and problems of one LoadBalancer.
type translation struct {
	services []lb.Service
	problems []string
	errs     []lb.FieldError
}

// fail adds a problem once.
func (t *translation) fail(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.problems, text) {
		t.problems = append(t.problems, text)
	}
}

// fields collects errors of the fields of a part of the object until failed is called.
func (t *translation) fields(part string) fields { return fields{part, &t.errs} }

// failed reports whether fields were invalid, which are problems then.
func (t *translation) failed() bool {
	errs := t.errs
	t.errs = nil
	for _, err := range errs {
		t.fail("%v", err)
	}
	return len(errs) > 0
}

// listener adds the service of a listener and its pool.
func (t *translation) listener(l *v1alpha1.Listener, p *v1alpha1.Pool, forward string, s lb.Service) {
	f, pool := t.fields("listener "+l.Name+": "), t.fields("pool "+p.Name+": ")
	f.add("forward", s.Forward.UnmarshalText([]byte(forward)))
	if l.Protocol == "UDP" {
		s.Protocol = lb.UDP
	}
	if s.Port = f.port("port", l.Port); l.Port == 0 {
		f.add("port", lb.OutOfRange(l.Port, 1, math.MaxUint16))
	}
	if p.SessionAffinity == "ClientIP" {
		s.Affinity = lb.AffinityClient
		s.AffinityTimeout = durationOf(p.SessionAffinityTimeout)
	}
	f.listener(&l.ListenerOptions, &s)
	if s.QUIC != nil && s.Affinity != lb.AffinityFlow {
		f.add("quic", fmt.Errorf("not with sessionAffinity %s of pool %s", p.SessionAffinity, p.Name))
	} else if s.QUIC != nil {
		s.Affinity = lb.AffinityQUIC
	}
	pool.pool(&p.PoolOptions, &s)
	var health *lb.HealthCheck
	if p.HealthCheck != nil {
		health = pool.in("healthCheck: ").healthCheck(p.HealthCheck)
	}
	if t.failed() {
		return
	}
	sources, errs := Sources(l.SourceRanges, s.Address)
	s.Sources = sources
	for _, err := range errs {
		t.fail("listener %s: sourceRanges%v", l.Name, err)
	}
	for i := range p.Members {
		m := &p.Members[i]
		if m.Enabled != nil && !*m.Enabled {
			continue
		}
		b := pool.in("member "+string(m.Address)+": ").member(m.Address, m.Port, &m.MemberOptions)
		if t.failed() {
			continue
		}
		if s.QUIC == nil {
			b.ServerID = "" // for other listeners
		}
		b.MaxConnections = cmp.Or(b.MaxConnections, int(p.MaxConnections))
		s.Backends = append(s.Backends, b)
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

// SetDefaults sets fields that depend on mode and protocol: mode nat learns no flows, as
// it has a session for each. A check over TCP is used for a UDP service, and one over
// UDP for a TCP service, only if it or each backend has a port of its own.
func SetDefaults(s *lb.Service, health *lb.HealthCheck) {
	s.Learn = learn(s)
	if health == nil {
		return
	}
	ownPort := health.Port != 0 || len(s.Backends) > 0 && !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.MonitorPort == 0 })
	if p := health.Type.Protocol(); p == 0 || p == s.Protocol || ownPort {
		s.Health = health
	}
}

// learn returns the default of a service's Learn.
func learn(s *lb.Service) time.Duration {
	if s.Protocol == lb.UDP && s.Forward != lb.NAT {
		return lb.DefaultLearn
	}
	return 0
}

// Servable returns a service without the backends that a check refuses, the errors of the check,
// and whether the service can be served.
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

// PartError is the reason for which no node can serve a listener of a LoadBalancer, or a
// member of its pool.
type PartError struct {
	Listener, Pool string
	// Member is the member's address and port; empty for an error of the listener.
	Member string
	Text   string
}

// CheckLoadBalancer returns the errors of all listeners of a LoadBalancer with that
// address, in a group with a policy, nil for no group.
func CheckLoadBalancer(b *v1alpha1.LoadBalancer, address netip.Addr, policy *Policy, n *Networks) (errs []PartError) {
	var all []lb.Service
	for i, l := range b.Spec.Listeners {
		one := *b
		one.Spec.Listeners = b.Spec.Listeners[i : i+1]
		services, texts := LoadBalancer(&one, address)
		var found []PartError
		for _, s := range services {
			found = checkService(s, policy, n)
			if err := s.Alike(all...); err != nil {
				found = append(found, PartError{Text: err.Error()})
			}
		}
		all = append(all, services...)
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

// checkService returns the errors of a service; its backends' are errors of members.
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
