// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"math"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// balancer translates a LoadBalancer that this node's group serves: one service
// for each of its listeners.
func (t *translation) balancer(b *v1alpha1.LoadBalancer) {
	address, err := netip.ParseAddr(b.Status.Address)
	if err != nil {
		return // it has none yet
	}
	t.listeners(b, address, t.add)
}

// listeners hands over the services that a LoadBalancer's listeners are which are
// enabled and can be read.
func (t *translation) listeners(b *v1alpha1.LoadBalancer, address netip.Addr, take func(lb.Service)) {
	var forward lb.Forward
	if err := forward.UnmarshalText([]byte(b.Spec.Forward)); err != nil {
		t.fail("spec.forward: %v", err)
		return
	}
	for i := range b.Spec.Listeners {
		l := &b.Spec.Listeners[i]
		at := slices.IndexFunc(b.Spec.Pools, func(p v1alpha1.Pool) bool { return p.Name == l.Pool })
		switch {
		case l.Enabled != nil && !*l.Enabled:
		case at < 0:
			t.fail("listener %s: pool %s is missing", l.Name, l.Pool)
		default:
			s, readable := t.listener(l, &b.Spec.Pools[at], lb.Service{
				// No Service's name has a colon.
				Name:    "flb:" + b.Namespace + "/" + b.Name + "/" + l.Name,
				VIP:     lb.VIP{Address: address, Port: uint16(l.Port), Protocol: lb.TCP, Segment: segmentOf(b.Spec.Segment)},
				Forward: forward, MinHealthy: 1,
			})
			if readable {
				take(s)
			}
		}
	}
}

// listener completes a service with what a listener and its pool say.
func (t *translation) listener(l *v1alpha1.Listener, p *v1alpha1.Pool, s lb.Service) (_ lb.Service, readable bool) {
	if l.Protocol == "UDP" {
		s.Protocol = lb.UDP
	}
	if l.Port < 1 || l.Port > math.MaxUint16 {
		t.fail("listener %s: port: %v", l.Name, lb.OutOfRange(l.Port, 1, math.MaxUint16))
		return s, false
	}
	if p.SessionAffinity == "ClientIP" {
		s.Affinity = lb.AffinityClient
	}
	for i, text := range l.SourceRanges {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			t.fail("listener %s: sourceRanges[%d]: bad range %q: nobody of it is let in", l.Name, i, text)
		case prefix.Addr().Is4() == s.Address.Is4() && !slices.Contains(s.Sources.Allow, prefix.Masked()):
			s.Sources.Allow = append(s.Sources.Allow, prefix.Masked())
		}
	}
	if len(l.SourceRanges) > 0 && len(s.Sources.Allow) == 0 {
		s.Sources.Deny = []netip.Prefix{netip.PrefixFrom(s.Address, 0).Masked()}
	}
	health, err := readHealth(p.HealthCheck)
	if err != nil {
		t.fail("pool %s: healthCheck: %v", p.Name, err)
	}
	t.finish(&s, health)
	for i := range p.Members {
		if m, err := readMember(&p.Members[i]); err != nil {
			t.fail("pool %s: member %s: %v", p.Name, p.Members[i].Address, err)
		} else {
			s.Backends = append(s.Backends, m)
		}
	}
	return s, true
}

func readMember(m *v1alpha1.Member) (b lb.Backend, err error) {
	if b.Address, err = netip.ParseAddr(string(m.Address)); err != nil {
		return b, err
	}
	if m.Port < 1 || m.Port > math.MaxUint16 {
		return b, lb.OutOfRange(m.Port, 1, math.MaxUint16)
	}
	b.Port, b.Weight, b.Segment = uint16(m.Port), 1, segmentOf(m.Segment)
	if m.Weight != nil {
		b.Weight = int(*m.Weight)
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

// segmentOf is the zero Segment for nil, and one that no Check lets pass for what
// can't be read.
func segmentOf(s *v1alpha1.Segment) (own lb.Segment) {
	if s == nil {
		return own
	}
	if own.Type.UnmarshalText([]byte(s.Type)) != nil || s.ID < 0 || s.ID > math.MaxUint32 {
		return lb.Segment{Type: math.MaxUint8}
	}
	own.ID = uint32(s.ID)
	return own
}
