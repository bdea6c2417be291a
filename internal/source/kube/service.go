// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube/annotation"
)

// translation is one object on its way to services.
type translation struct {
	*World
	// group serves the object; nil if that is not known.
	group    *group
	services []lb.Service
	problems []string
	// byNodes says that nodes are backends of it, or relay to each other.
	byNodes bool
	// podsOnly says that a node can't stand in for another's pods.
	podsOnly bool
	// behind says that other nodes are the object's group: this one serves those of
	// its own pods that they relay packets to.
	behind bool
}

// fail takes note of a problem, once.
func (t *translation) fail(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.problems, text) {
		t.problems = append(t.problems, text)
	}
}

// taken reports whether a Service is Fairlead's: the controller, which knows
// whether the installation is the default for those without a class, has given it
// a group.
func taken(svc *corev1.Service) bool {
	class := deref(svc.Spec.LoadBalancerClass)
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(class == "" || strings.HasPrefix(class, v1alpha1.Group+"/")) &&
		svc.Annotations[v1alpha1.AnnotationGroup] != ""
}

// ingress are a Service's addresses, one of each family at most.
func (t *translation) ingress(svc *corev1.Service) (addresses []netip.Addr) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP == "" {
			continue // a name: another implementation's
		}
		a, err := netip.ParseAddr(in.IP)
		switch {
		case err != nil:
			t.fail("status.loadBalancer: bad address %q", in.IP)
		case slices.ContainsFunc(addresses, func(b netip.Addr) bool { return a.Is4() == b.Is4() }):
			t.fail("status.loadBalancer: %s is a second address of its family", a)
		default:
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// service translates a Service that this node's group serves, or another's that
// relays to this node: one service for each of its addresses and ports.
func (t *translation) service(svc *corev1.Service, g *group, all map[string]*slice) {
	settings, err := annotation.Parse(svc)
	if err != nil {
		t.problems = append(t.problems, strings.Split(err.Error(), "\n")...)
	}
	forward, health := t.forward(svc, cmp.Or(settings.Forward, g.forward), all), g.health
	if settings.Health.Given {
		health = settings.Health.Check
	}
	if t.behind && (forward != lb.DNAT || local(svc)) {
		return
	}
	t.byNodes = forward.DSR() || forward == lb.DNAT && !local(svc)
	for _, address := range t.ingress(svc) {
		sources := t.sources(svc, address)
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			if port.Port < 1 || port.Port > math.MaxUint16 {
				t.fail("port %d: %v", port.Port, lb.OutOfRange(port.Port, 1, math.MaxUint16))
				continue
			}
			s := lb.Service{
				Name:       serviceName(svc, port, address),
				VIP:        lb.VIP{Address: address, Port: uint16(port.Port)},
				Forward:    forward,
				Affinity:   affinity(svc.Spec.SessionAffinity),
				Sources:    sources,
				MinHealthy: 1,
			}
			if s.Protocol = t.protocol(port); s.Protocol == 0 {
				continue
			}
			t.finish(&s, health)
			s.Backends = t.backends(svc, &s, targets(all, port, address.Is4()))
			if s.Unannounced = t.behind; t.behind && len(s.Backends) == 0 {
				continue
			}
			t.add(s)
		}
	}
}

// forward is the mode of a Service that wants one of them. With policy Local it is
// dnat for nat, as pods of the node itself see clients by it. It is nat for dnat
// where endpoints are on no node that could translate.
func (t *translation) forward(svc *corev1.Service, wanted lb.Forward, all map[string]*slice) lb.Forward {
	switch {
	case wanted == lb.NAT && local(svc):
		return lb.DNAT
	case wanted == lb.DNAT && !local(svc) && nowhere(all):
		return lb.NAT
	}
	return wanted
}

// nowhere reports whether some endpoint is on no node.
func nowhere(all map[string]*slice) bool {
	for _, s := range all {
		if slices.ContainsFunc(s.endpoints, func(e endpoint) bool { return e.node == "" }) {
			return true
		}
	}
	return false
}

// serviceName is "namespace/name/port"; what has an IPv6 address ends in "/ipv6",
// as both may be there, and neither changes its name when the other comes.
func serviceName(svc *corev1.Service, port *corev1.ServicePort, address netip.Addr) string {
	name := svc.Namespace + "/" + svc.Name + "/" + cmp.Or(port.Name, strconv.Itoa(int(port.Port)))
	if address.Is4() {
		return name
	}
	return name + "/ipv6"
}

func local(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// protocol is 0, with a problem, for one that isn't balanced.
func (t *translation) protocol(port *corev1.ServicePort) lb.Protocol {
	switch p := defaulted(&port.Protocol); p {
	case corev1.ProtocolTCP:
		return lb.TCP
	case corev1.ProtocolUDP:
		return lb.UDP
	default:
		t.fail("port %d: %s is not balanced: want TCP or UDP", port.Port, p)
		return 0
	}
}

// affinity has no use for a time-out: a client's backend follows from its address
// for as long as the backends are there, which is longer than any. The service's
// IdleTimeout is about single flows and would not keep a client where it was after
// its last one: it stays the protocol's.
func affinity(a corev1.ServiceAffinity) lb.Affinity {
	if a == corev1.ServiceAffinityClientIP {
		return lb.AffinityClient
	}
	return lb.AffinityFlow
}

// finish sets what follows from the mode and the protocol. Nothing is learned
// with NAT, which knows all flows. A check that needs a connection says nothing
// about a UDP port: it is made only where it has a port of its own.
func (t *translation) finish(s *lb.Service, health *lb.HealthCheck) {
	if s.Protocol == lb.UDP && s.Forward != lb.NAT {
		s.Learn = lb.DefaultLearn
	}
	if health != nil && (s.Protocol != lb.UDP || health.Port != 0 || health.Type == lb.HealthICMP) {
		s.Health = health
	}
}

// sources are who may use an address, by spec.loadBalancerSourceRanges. Ranges of
// the other family only, or none that can be read, admit nobody.
func (t *translation) sources(svc *corev1.Service, address netip.Addr) (s lb.Sources) {
	if len(svc.Spec.LoadBalancerSourceRanges) == 0 {
		return s
	}
	for i, text := range svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil || p.Addr().Is4In6():
			t.fail("spec.loadBalancerSourceRanges[%d]: bad range %q: nobody of it is let in", i, text)
		case p.Addr().Is4() == address.Is4() && !slices.Contains(s.Allow, p.Masked()):
			s.Allow = append(s.Allow, p.Masked())
		}
	}
	if len(s.Allow) == 0 {
		s.Deny = []netip.Prefix{netip.PrefixFrom(address, 0).Masked()}
	}
	return s
}
