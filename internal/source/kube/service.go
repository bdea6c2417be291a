// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// translation translates one object.
type translation struct {
	*Cache
	// group serves the object; nil if unknown.
	group    *group
	services []lb.Service
	problems []string
	// byNodes says that the services depend on nodes.
	byNodes bool
	// vips and names are the VIPs and names of services, targets the number of their endpoints.
	vips    map[lb.VIP]bool
	names   map[string]lb.VIP
	targets int
	// relayTarget says that the nodes of another group serve the object: this one only receives
	// forwarded or tunnelled packets for its own pods.
	relayTarget bool
	// policy limits the services of a LoadBalancer; nil for a Service.
	policy *spec.Policy
}

// fail adds a problem once, up to source.MaxProblems.
func (t *translation) fail(format string, args ...any) {
	if len(t.problems) > source.MaxProblems {
		return
	}
	text := fmt.Sprintf(format, args...)
	if len(t.problems) == source.MaxProblems {
		text = "more problems, which are not shown"
	}
	if !slices.Contains(t.problems, text) {
		t.problems = append(t.problems, text)
	}
}

// isOurs reports whether a Service is Fairlead's: the controller, which knows whether Fairlead
// is the default for Services without class, has assigned a group.
func isOurs(svc *corev1.Service) bool {
	class := deref(svc.Spec.LoadBalancerClass)
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(class == "" || strings.HasPrefix(class, v1alpha1.Group+"/")) && spec.ServedBy(svc) != ""
}

// ingress returns a Service's addresses, at most one of each family.
func (t *translation) ingress(svc *corev1.Service) (addresses []netip.Addr) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP == "" {
			continue // a host name, of another implementation
		}
		a, err := netip.ParseAddr(in.IP)
		switch {
		case err != nil:
			t.fail("status.loadBalancer: bad address %q", in.IP)
		case slices.ContainsFunc(addresses, func(b netip.Addr) bool { return a.Is4() == b.Is4() }):
			t.fail("status.loadBalancer: %s is a second address of the same family", a)
		case !t.admission.inPool(svc, a):
			t.fail("status.loadBalancer: %s is in no AddressPool for this Service", a)
		default:
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// service translates a Service that this node's group serves, or another group that forwards
// to this node: one service for each address and port.
func (t *translation) service(svc *corev1.Service, g *group, all map[string]*slice) {
	settings, err := spec.ParseAnnotations(svc)
	if err != nil {
		t.problems = append(t.problems, strings.Split(err.Error(), "\n")...)
	}
	ports, err := spec.Ports(svc)
	if err != nil {
		t.fail("%v", err)
	}
	byPort := indexPorts(all)
	forward := cmp.Or(settings.Forward, g.forward)
	if forward == lb.NAT && local(svc) {
		forward = lb.DSR // so that pods see client addresses
	}
	if t.relayTarget && !t.viaOtherGroup(svc, forward) {
		t.problems = nil
		return
	}
	t.byNodes = !forward.Translates() || forward == lb.DSR
	health := t.health(settings, forward, g)
	limits := settings.Port.Limits.Or(g.limits)
	ranges, field := spec.SourceRanges(svc)
	for _, address := range t.ingress(svc) {
		sources, errs := spec.Sources(ranges, address)
		for _, err := range errs {
			t.fail("%s%v", field, err)
		}
		for i := range ports {
			port := &ports[i]
			vip, served := t.vipOf(port, address)
			if !served {
				continue
			}
			s := settings.Service(svc)
			s.Name, s.VIP, s.Forward = spec.PortName(svc, port, address), vip, forward
			s.Sources, s.Limits = sources, limits
			spec.SetDefaults(&s, health)
			s.Membership, s.Balancers = t.membership(&s), t.balancers(&s)
			endpoints := targets(byPort[spec.EndpointPort{Name: port.Name, Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP), IPv4: address.Is4()}])
			if t.targets += len(endpoints); t.targets > t.MaxBackends {
				t.fail("the endpoints of all ports are more than %d: raise dataplane.backends", t.MaxBackends)
				return
			}
			s.Backends = t.backends(svc, &s, endpoints)
			settings.SetBackends(s.Backends)
			if s.Unannounced = s.Unannounced || t.relayTarget; t.relayTarget && forward == lb.DSR && len(s.Backends) == 0 {
				continue // services with tunnels are kept: the sender may know other backends
			}
			t.add(s)
		}
	}
}

// allotMark replaces the firewall mark of the object's services by one of the kernel.
func (t *translation) allotMark(id Object) {
	var mark, mask, number uint32
	if len(t.services) > 0 {
		mark, mask = t.services[0].FirewallMark, t.group.marks
	}
	if number = t.marks.Set(id, id.Namespace, mark, mask); mark != 0 && number == 0 {
		t.fail("firewall mark %d: the group's spec.dataPlane.firewallMarkMask has no free number: not served", mark)
		t.services = nil
	}
	for i := range t.services {
		t.services[i].FirewallMark = number
	}
}

// vipOf returns the VIP of a port, and whether it can be served.
func (t *translation) vipOf(port *corev1.ServicePort, address netip.Addr) (vip lb.VIP, served bool) {
	if port.Port < 1 || port.Port > math.MaxUint16 {
		t.fail("port %d: %v", port.Port, lb.OutOfRange(port.Port, 1, math.MaxUint16))
		return vip, false
	}
	protocol, served := spec.Protocol(port.Protocol)
	if !served {
		t.fail("port %d: %s is not supported: want TCP or UDP", port.Port, port.Protocol)
	}
	return lb.VIP{Address: address, Port: uint16(port.Port), Protocol: protocol}, served
}

// health returns the health check of a Service. Nodes are not probed: a probe is a connection
// to the VIP, which this node's own kube-proxy would take.
func (t *translation) health(settings spec.Settings, forward lb.Forward, g *group) *lb.HealthCheck {
	check := g.health
	if settings.Health.Given {
		check = t.raised(g, settings.Health.Check)
	}
	if check != nil && check.Passive && forward != lb.NAT { // of the group, for its Services with nat
		active := *check
		active.Passive = false
		check = &active
	}
	if forward.Translates() {
		return check
	}
	if settings.Health.Given && check != nil {
		t.fail("annotation %s: not with %s: nodes are not probed", v1alpha1.AnnotationHealthCheck, forward)
	}
	return nil
}

// raised raises the interval of a check that an object chooses to the group's shortest.
func (t *translation) raised(g *group, check *lb.HealthCheck) *lb.HealthCheck {
	check, shorter := g.bounds.Interval(check)
	if shorter {
		t.fail("health checks every %s: the group allows no shorter interval", g.bounds.MinInterval)
	}
	return check
}

// viaOtherGroup reports whether nodes of another group may send packets of a Service to this
// node that the kernel alone would drop: L2 DSR packets it accepts.
func (t *translation) viaOtherGroup(svc *corev1.Service, forward lb.Forward) bool {
	if forward == lb.DSR {
		return t.slices.contain(name(svc), func(e *endpoint) bool { return e.node == t.Node })
	}
	return forward == lb.IPIP || forward == lb.GUE
}

func local(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// balancer translates a LoadBalancer that this node's group serves.
func (t *translation) balancer(b *v1alpha1.LoadBalancer) {
	address, err := netip.ParseAddr(b.Status.Address)
	if err != nil {
		return // no address yet
	}
	if b.Spec.Segment == nil && !t.admission.inPool(b, address) {
		t.fail("status.address: %s is in no AddressPool for this LoadBalancer", address)
		return
	}
	t.policy = &t.group.policy
	services, problems := spec.LoadBalancer(b, address)
	for _, p := range problems {
		t.fail("%s", p)
	}
	for _, s := range services {
		s.Limits, s.Health = s.Limits.Or(t.group.limits), t.raised(t.group, s.Health)
		t.add(s)
	}
}
