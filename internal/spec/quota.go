// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// Defaults of a group's bounds.
const (
	defaultMaxPorts       = 256
	defaultServices       = 1024
	defaultBackends       = 32768
	defaultSourcePrefixes = 32768
	defaultProbes         = 8192
	defaultMinInterval    = 500 * time.Millisecond
)

// Usage counts the resources of nodes that an object or a namespace takes. It depends on objects
// of the API alone.
type Usage struct {
	// Ports is the number of ports of an object, Ranges the length of the longest list of sources.
	Ports, Ranges int
	// Services is the number of addresses and ports; the others are sums over these.
	Services, Backends, SourcePrefixes, Probes int
}

// Bounds are the group's settings that bound its objects.
type Bounds struct {
	// Usage has the maximum of ports of an object, and of the rest of a namespace.
	Usage
	// MinInterval is the shortest interval of health checks that objects may choose.
	MinInterval time.Duration

	group   string
	marks   bool
	ipvs    bool
	forward lb.Forward
	checked *lb.HealthCheck
}

// BoundsOf returns the bounds of a group.
func BoundsOf(g *v1alpha1.LoadBalancerGroup) Bounds {
	q := g.Spec.Services.PerNamespace
	d := &g.Spec.DataPlane
	b := Bounds{group: g.Name, marks: d.FirewallMarkMask != 0, ipvs: d.IPVS, forward: lb.DSR, MinInterval: defaultMinInterval, Usage: Usage{
		Ports:          cmp.Or(int(g.Spec.Services.MaxPorts), defaultMaxPorts),
		Ranges:         lb.MaxSources,
		Services:       cmp.Or(int(q.Services), defaultServices),
		Backends:       cmp.Or(int(q.Backends), defaultBackends),
		SourcePrefixes: cmp.Or(int(q.SourcePrefixes), defaultSourcePrefixes),
		Probes:         cmp.Or(int(q.Probes), defaultProbes),
	}}
	if d.MinHealthCheckInterval != nil {
		b.MinInterval = d.MinHealthCheckInterval.Duration
	}
	if err := b.forward.UnmarshalText([]byte(d.Forward)); err != nil {
		b.forward = lb.DSR
	}
	b.checked, _ = HealthCheck(d.HealthCheck)
	return b
}

// EndpointPort is the name and protocol by which a port of a Service matches a port of an
// EndpointSlice, and their family.
type EndpointPort struct {
	Name     string
	Protocol corev1.Protocol
	IPv4     bool
}

// Endpoints counts the usable endpoints of a Service by port, those that several of its
// EndpointSlices have several times.
type Endpoints map[EndpointPort]int

// Add adds n endpoints to each of some ports.
func (e Endpoints) Add(ports []SlicePort, n int) {
	for _, p := range ports {
		e[p.EndpointPort] += n
	}
}

// SlicePort is a port of every endpoint of an EndpointSlice.
type SlicePort struct {
	EndpointPort
	Number uint16
}

// SlicePorts returns the ports of an EndpointSlice that can be balanced. FQDN endpoints have none.
func SlicePorts(es *discoveryv1.EndpointSlice) (ports []SlicePort) {
	if es.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	for i := range es.Ports {
		p := &es.Ports[i]
		if p.Port == nil || *p.Port < 1 || *p.Port > math.MaxUint16 {
			continue // "all ports" is not for proxies
		}
		one := SlicePort{EndpointPort{IPv4: es.AddressType == discoveryv1.AddressTypeIPv4, Protocol: corev1.ProtocolTCP}, uint16(*p.Port)}
		if p.Name != nil {
			one.Name = *p.Name
		}
		if p.Protocol != nil {
			one.Protocol = cmp.Or(*p.Protocol, corev1.ProtocolTCP)
		}
		ports = append(ports, one)
	}
	return ports
}

// EndpointCondition is the usability of an endpoint.
type EndpointCondition uint8

// The conditions of an endpoint, the worst first.
const (
	// Unusable endpoints get no packets.
	Unusable EndpointCondition = iota
	// Ending endpoints terminate and no longer serve. They keep their flows.
	Ending
	// Terminating endpoints serve, but get no new flows.
	Terminating
	// Ready includes endpoints of Services that publish addresses that are not ready:
	// EndpointSlices call them ready.
	Ready
)

// ConditionOf reads conditions with the documented defaults: ready is true, serving equals ready,
// terminating is false.
func ConditionOf(c *discoveryv1.EndpointConditions) EndpointCondition {
	switch {
	case c.Ready == nil || *c.Ready:
		return Ready
	case c.Terminating == nil || !*c.Terminating:
		return Unusable
	case c.Serving != nil && *c.Serving:
		return Terminating
	}
	return Ending
}

// Usable returns the number of endpoints of an EndpointSlice that may get packets.
func Usable(es *discoveryv1.EndpointSlice) (n int) {
	for i := range es.Endpoints {
		if ConditionOf(&es.Endpoints[i].Conditions) != Unusable {
			n++
		}
	}
	return n
}

// ServiceUsage returns the usage of a Service with these endpoints. Beyond MaxPorts only Ports is
// set.
func (b Bounds) ServiceUsage(svc *corev1.Service, endpoints Endpoints) (u Usage) {
	if u.Ports = len(svc.Spec.Ports); u.Ports > b.Ports {
		return u
	}
	settings, _ := ParseAnnotations(svc)
	forward := cmp.Or(settings.Forward, b.forward)
	check := b.checked
	if settings.Health.Given {
		check = settings.Health.Check
	}
	ranges, _ := SourceRanges(svc)
	for _, in := range svc.Status.LoadBalancer.Ingress {
		address, err := netip.ParseAddr(in.IP)
		if err != nil {
			continue
		}
		sources, _ := Sources(ranges, address)
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			protocol, served := Protocol(port.Protocol)
			if !served {
				continue
			}
			s, backends := lb.Service{VIP: lb.VIP{Address: address, Protocol: protocol}, Forward: forward, Sources: sources}, 0
			if forward.Translates() { // the others send to nodes
				SetDefaults(&s, check)
				backends = endpoints[EndpointPort{port.Name, cmp.Or(port.Protocol, corev1.ProtocolTCP), address.Is4()}]
			}
			u.add(&s, backends)
		}
	}
	return u
}

// LoadBalancerUsage returns the usage of a LoadBalancer. Beyond MaxPorts only Ports is set.
func (b Bounds) LoadBalancerUsage(l *v1alpha1.LoadBalancer) (u Usage) {
	if u.Ports = len(l.Spec.Listeners); u.Ports > b.Ports {
		return u
	}
	address, err := netip.ParseAddr(l.Status.Address)
	if err != nil {
		return u
	}
	services, _ := LoadBalancer(l, address)
	for i := range services {
		u.add(&services[i], len(services[i].Backends))
	}
	return u
}

// add adds one address and port with n backends.
func (u *Usage) add(s *lb.Service, n int) {
	u.Services++
	u.Backends += n
	if ranges := len(s.Sources.Allow) + len(s.Sources.Deny); ranges > 0 {
		u.Ranges = max(u.Ranges, ranges)
		u.SourcePrefixes += ranges + 1 // and the prefix of all others
	}
	if s.Health != nil {
		u.Probes += n
	}
}

// Claim is an object of a namespace, as far as its usage matters to the others.
type Claim struct {
	// Kind and Name identify the object, Created is when it was created.
	Kind, Name string
	Created    time.Time
	// Group is the LoadBalancerGroup that the object is placed in.
	Group string
	Usage Usage
	// Members is the number of members of all pools, used or not, where something bounds it.
	Members int
	// Marked says that the object has a firewall mark. IPVS is another setting for which it needs
	// IPVS, as the path of the field or as the annotation; empty if it has none.
	Marked bool
	IPVS   string
	// Raised says that health checks have another interval than the object chooses; empty if not.
	Raised string
}

// ClaimOf returns the claim of a Service with these endpoints, or of a LoadBalancer, at the
// addresses in its status.
func (b Bounds) ClaimOf(object metav1.Object, endpoints Endpoints) Claim {
	c := Claim{Name: object.GetName(), Created: object.GetCreationTimestamp().Time, Group: b.group}
	var checks []*lb.HealthCheck
	switch o := object.(type) {
	case *corev1.Service:
		settings, _ := ParseAnnotations(o)
		c.Kind, c.Usage, checks = "Service", b.ServiceUsage(o, endpoints), append(checks, settings.Health.Check)
		c.Marked, c.IPVS = settings.Port.FirewallMark != 0, settings.ipvs()
	case *v1alpha1.LoadBalancer:
		c.Kind, c.Usage, c.Marked = "LoadBalancer", b.LoadBalancerUsage(o), o.Spec.FirewallMark != 0
		c.IPVS = ipvsField(&o.Spec)
		for i := range o.Spec.Pools {
			if check, err := HealthCheck(o.Spec.Pools[i].HealthCheck); err == nil {
				checks = append(checks, check)
			}
		}
	}
	for _, check := range checks {
		if _, shorter := b.Interval(check); shorter {
			c.Raised = fmt.Sprintf("health checks every %s: LoadBalancerGroup %s allows no shorter interval", b.MinInterval, b.group)
		}
	}
	return c
}

// Refusal is the reason why an object isn't served, as in a condition; the zero value is none.
type Refusal struct{ Reason, Message string }

// Admit decides which objects of one namespace are served: of each group the oldest ones that fit
// into its bounds together. It returns the refusal of each claim, in their order. The controller
// and the API server without a cluster call it, and nodes obey.
func Admit(groups map[string]Bounds, claims []Claim) []Refusal {
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &claims[i], &claims[j]
		return cmp.Or(cmp.Compare(a.Created.Unix(), b.Created.Unix()), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	refusals, used := make([]Refusal, len(claims)), map[string]Usage{}
	for _, i := range order {
		c := &claims[i]
		if refusals[i], _ = groups[c.Group].AllowsIPVS(c); refusals[i].Reason != "" {
			continue
		}
		if total, why := groups[c.Group].add(used[c.Group], c.Usage); why != "" {
			refusals[i] = Refusal{Reason: "QuotaExceeded", Message: why}
		} else {
			used[c.Group] = total
		}
	}
	return refusals
}

// AllowsIPVS returns the refusal of an object with settings that only IPVS has, and the field that is
// refused. Tenants don't choose the data plane of nodes, nor the bits of their marks.
func (b Bounds) AllowsIPVS(c *Claim) (refused Refusal, path string) {
	group := "(LoadBalancerGroup " + b.group + ", spec.dataPlane."
	switch {
	case c.Marked && !b.marks:
		return Refusal{"NoFirewallMarks", "firewall marks need bits of the nodes' kernels " + group + "firewallMarkMask): not served"}, "firewallMark"
	case c.IPVS != "" && !b.ipvs:
		return Refusal{"NoIPVS", c.IPVS + " needs IPVS, which isn't allowed " + group + "ipvs): not served"}, c.IPVS
	}
	return Refusal{}, ""
}

// ipvsField returns the path of the first field for which a LoadBalancer needs IPVS.
func ipvsField(s *v1alpha1.LoadBalancerSpec) string {
	for i := range s.Pools {
		p := &s.Pools[i]
		switch limited := slices.IndexFunc(p.Members, func(m v1alpha1.Member) bool { return m.MaxConnections != 0 }); {
		case p.Scheduler != "" && p.Scheduler != lb.SchedulerMaglev.String():
			return fmt.Sprintf("pools[%d].scheduler", i)
		case p.MaxConnections != 0:
			return fmt.Sprintf("pools[%d].maxConnections", i)
		case limited >= 0:
			return fmt.Sprintf("pools[%d].members[%d].maxConnections", i, limited)
		}
	}
	return ""
}

// add adds the usage of an object to the usage of older ones, or returns why it is refused.
func (b Bounds) add(used, u Usage) (total Usage, refused string) {
	switch {
	case u.Ports > b.Ports:
		return used, b.TooManyPorts(u.Ports)
	case u.Ranges > b.Ranges:
		return used, fmt.Sprintf("%d source ranges are more than %d: not served", u.Ranges, b.Ranges)
	}
	total = Usage{
		Services: used.Services + u.Services, Backends: used.Backends + u.Backends,
		SourcePrefixes: used.SourcePrefixes + u.SourcePrefixes, Probes: used.Probes + u.Probes,
	}
	for _, bound := range []struct {
		name               string
		used, total, limit int
	}{
		{"services", used.Services, total.Services, b.Services},
		{"backends", used.Backends, total.Backends, b.Backends},
		{"sourcePrefixes", used.SourcePrefixes, total.SourcePrefixes, b.SourcePrefixes},
		{"probes", used.Probes, total.Probes, b.Probes},
	} {
		if bound.total > bound.limit && bound.total > bound.used {
			return used, fmt.Sprintf("its %s and those of older objects of the namespace are more than %d (LoadBalancerGroup %s, spec.services.perNamespace.%s): not served",
				bound.name, bound.limit, b.group, bound.name)
		}
	}
	return total, ""
}

// TooManyPorts returns why an object with n ports isn't served; empty if it is.
func (b Bounds) TooManyPorts(n int) string {
	if n <= b.Ports {
		return ""
	}
	return fmt.Sprintf("%d ports are more than %d (LoadBalancerGroup %s, spec.services.maxPorts): not served", n, b.Ports, b.group)
}

// Grows reports whether a usage is larger than an earlier one of the same object in any respect.
func (u Usage) Grows(before Usage) bool {
	return u.Ports > before.Ports || u.Ranges > before.Ranges || u.Services > before.Services || u.Backends > before.Backends ||
		u.SourcePrefixes > before.SourcePrefixes || u.Probes > before.Probes
}

// Interval raises the interval of a check that an object chooses to the group's shortest, and
// reports whether it was shorter.
func (b Bounds) Interval(check *lb.HealthCheck) (raised *lb.HealthCheck, shorter bool) {
	if check == nil || check.Interval >= b.MinInterval {
		return check, false
	}
	one := *check
	one.Interval = b.MinInterval
	return &one, true
}
