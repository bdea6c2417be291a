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
	"time"

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
	// behind says that other nodes are the object's group: this one serves what they
	// relay to its own pods, or send through tunnels to it.
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
	forward := cmp.Or(settings.Forward, g.forward)
	if forward == lb.NAT && local(svc) {
		forward = lb.DNAT // by which pods of the node itself see clients
	}
	if t.behind && !t.called(svc, forward) {
		t.problems = nil
		return
	}
	t.byNodes = forward.DSR() || forward == lb.DNAT
	health := t.health(settings, forward, g)
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
				Sources:    sources,
				MinHealthy: 1,
			}
			if s.Protocol = t.protocol(port); s.Protocol == 0 {
				continue
			}
			s.Affinity, s.AffinityTimeout = affinity(svc)
			t.finish(&s, health)
			s.Membership = t.membership(&s)
			s.Backends = t.backends(svc, &s, targets(all, port, address.Is4()))
			if s.Unannounced = t.behind; t.behind && forward == lb.DNAT && len(s.Backends) == 0 {
				continue // tunnels are ended all the same: who sends may know more
			}
			t.add(s)
		}
	}
}

// health is how a Service's backends are probed. Nodes are not: a probe is a connection
// to the VIP, which this node's own kube-proxy would take.
func (t *translation) health(settings annotation.Settings, forward lb.Forward, g *group) *lb.HealthCheck {
	check := g.health
	if settings.Health.Given {
		check = settings.Health.Check
	}
	if !forward.DSR() {
		return check
	}
	if settings.Health.Given && check != nil {
		t.fail("annotation %s: not with %s: which nodes get packets follows from what Kubernetes says of them", v1alpha1.AnnotationHealthCheck, forward)
	}
	return nil
}

// called reports whether nodes of another group may send packets of a Service to this
// one that the kernel alone would not take: as they came, by L2 DSR, it does.
func (t *translation) called(svc *corev1.Service, forward lb.Forward) bool {
	if forward == lb.DNAT {
		return !local(svc) && t.hasPod(Object{KindService, svc.Namespace, svc.Name})
	}
	return forward == lb.IPIP || forward == lb.GUE
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

// affinity is whose flows belong together, and how long a client is remembered that
// begins none. spec.sessionAffinityConfig may be missing in what a file had.
func affinity(svc *corev1.Service) (lb.Affinity, time.Duration) {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return lb.AffinityFlow, 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	timeout := time.Duration(seconds) * time.Second
	return lb.AffinityClient, min(max(timeout, lb.MinAffinityTimeout), lb.MaxAffinityTimeout)
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
