// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/internal/spec"
)

// Provisioning statuses, as OpenStack's Octavia has them: whether the controller has accepted the
// client's last write.
const (
	provisioned   = "ACTIVE"
	rejected      = "ERROR"
	pendingCreate = "PENDING_CREATE"
	pendingUpdate = "PENDING_UPDATE"
	pendingDelete = "PENDING_DELETE"
)

// Operating statuses, as Octavia has them, and unknown: a node doesn't report, or has more dead
// backends than a report lists.
const (
	online    = "ONLINE"
	degraded  = "DEGRADED"
	failed    = "ERROR"
	offline   = "OFFLINE"
	draining  = "DRAINING"
	noMonitor = "NO_MONITOR"
	unknown   = "UNKNOWN"
)

// partStatus is the status of a part. Name is that in its path.
type partStatus struct {
	Name               string `json:"name"`
	ProvisioningStatus string `json:"provisioningStatus"`
	OperatingStatus    string `json:"operatingStatus"`
	// Message is the reason of a status that isn't as it should be.
	Message string `json:"message,omitempty"`
}

// listenerStatus is the status of a listener.
type listenerStatus struct {
	partStatus
	// Pool is the name of its pool.
	Pool string `json:"pool,omitempty"`
}

// poolStatus is the status of a pool.
type poolStatus struct {
	partStatus
	Members []partStatus `json:"members"`
}

// balancerStatus is the status of a load balancer and of its parts.
type balancerStatus struct {
	partStatus
	// Address is the virtual address; empty until there is one.
	Address string `json:"address,omitempty"`
	// Group is the LoadBalancerGroup that serves it.
	Group     string           `json:"group,omitempty"`
	Listeners []listenerStatus `json:"listeners"`
	Pools     []poolStatus     `json:"pools"`
}

// A client may wait maxWait seconds for another status, which is read once in statusInterval.
const (
	maxWait = 5
	// maxWaits is how many requests wait at once.
	maxWaits       = 32
	statusInterval = 500 * time.Millisecond
)

// status answers with the status of a load balancer. If the client waits, the response is sent once
// the entity tag differs from If-None-Match, or the time is over. It is answered at once while too
// many wait.
func (s *server) status(ctx context.Context, c *call) (int, any, error) {
	wait, err := numberIn(c.request.URL.Query(), "wait", maxWait, 0)
	if err != nil {
		return 0, nil, err
	}
	if wait > 0 && s.waits.take(c.client.name, 1) {
		defer s.waits.take(c.client.name, -1)
	} else {
		wait = 0
	}
	end := time.Now().Add(time.Duration(wait) * time.Second)
	for {
		text, err := s.currentStatus(ctx, c)
		if err != nil {
			return 0, nil, err
		}
		if time.Until(end) <= 0 || !matches(c.request, "If-None-Match", tagOf(text)) {
			return http.StatusOK, json.RawMessage(text), nil
		}
		c.rest(0)
		select {
		case <-time.After(min(statusInterval, time.Until(end))):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}

// currentStatus reads the status of a load balancer.
func (s *server) currentStatus(ctx context.Context, c *call) ([]byte, error) {
	b, err := s.balancer(ctx, c)
	if err != nil {
		return nil, err
	}
	var reports map[string]*v1alpha1.BalancerNodeStatus
	if b.Status.Group != "" {
		if reports, err = s.store.Reports(ctx, b.Status.Group); err != nil {
			return nil, err
		}
	}
	return json.Marshal(statusOf(b, readNodes(reports)))
}

// balancer returns the load balancer of a request.
func (s *server) balancer(ctx context.Context, c *call) (*v1alpha1.LoadBalancer, error) {
	text, err := s.read(ctx, c, typedFactor)
	if err != nil {
		return nil, err
	}
	return decodeStored([]byte(c.project+"/"+c.balancer), text)
}

// statusOf returns the status of a load balancer of which the ready nodes of its group reported.
func statusOf(b *v1alpha1.LoadBalancer, nodes []*report.Node) balancerStatus {
	state, message := provisioning(b)
	o := observe(b, nodes)
	status := balancerStatus{
		Address: b.Status.Address, Group: b.Status.Group, Listeners: []listenerStatus{}, Pools: []poolStatus{},
	}
	pools := map[string]string{} // operating statuses
	for i := range b.Spec.Pools {
		p := o.pool(&b.Spec.Pools[i], state)
		pools[p.Name] = p.OperatingStatus
		status.Pools = append(status.Pools, p)
	}
	var all []string
	for i := range b.Spec.Listeners {
		l := o.listener(&b.Spec.Listeners[i], state, pools)
		all = append(all, l.OperatingStatus)
		status.Listeners = append(status.Listeners, l)
	}
	status.partStatus = partStatus{b.Name, state, summary(all), message}
	return status
}

// provisioning returns the provisioning status of a load balancer, and the reason.
func provisioning(b *v1alpha1.LoadBalancer) (state, message string) {
	allocated := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAllocated)
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	current := func(c *metav1.Condition) bool { return c != nil && c.ObservedGeneration >= b.Generation }
	switch {
	case b.DeletionTimestamp != nil:
		return pendingDelete, ""
	case current(allocated) && allocated.Status != metav1.ConditionTrue:
		return rejected, allocated.Message
	case current(ready) && ready.Status != metav1.ConditionTrue:
		return rejected, ready.Message
	case current(allocated) && current(ready):
		return provisioned, ""
	case ready == nil:
		return pendingCreate, ""
	}
	return pendingUpdate, ""
}

// summary returns the operating status of a resource whose parts have these statuses.
func summary(parts []string) string {
	parts = slices.DeleteFunc(slices.Clone(parts), func(s string) bool { return s == offline })
	bad := 0
	for _, s := range parts {
		if s == failed {
			bad++
		}
	}
	switch {
	case len(parts) == 0:
		return offline
	case bad == len(parts):
		return failed
	case bad > 0 || slices.Contains(parts, degraded):
		return degraded
	case slices.Contains(parts, unknown):
		return unknown
	}
	return online
}

// observation has the reports of a group's ready nodes about a load balancer.
type observation struct {
	balancer *v1alpha1.LoadBalancer
	owner    alloc.Owner
	nodes    []*report.Node
	// services are the accepted listeners'.
	services []lb.Service
	dead     []report.DeadBackend
	// partial is true if dead may lack some.
	partial bool
}

// readNodes reads the reports of nodes, by name.
func readNodes(reports map[string]*v1alpha1.BalancerNodeStatus) (nodes []*report.Node) {
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		nodes = append(nodes, report.Read(node, reports[node]))
	}
	return nodes
}

func observe(b *v1alpha1.LoadBalancer, nodes []*report.Node) *observation {
	o := &observation{balancer: b, owner: alloc.Owner{Kind: "LoadBalancer", Namespace: b.Namespace, Name: b.Name}, nodes: nodes}
	if address, err := netip.ParseAddr(b.Status.Address); err == nil {
		accepted := *b
		accepted.Spec.Listeners = acceptedListeners(b)
		o.services, _ = spec.LoadBalancer(&accepted, address)
	}
	dead, all := report.Dead(o.owner, o.nodes)
	o.dead, o.partial = dead, !all
	return o
}

// refused returns the nodes whose data plane refused a service, each with the reason.
func (o *observation) refused(service string) (by []string) {
	for _, n := range o.nodes {
		for _, f := range n.Failed(o.owner) {
			if f.Object == service {
				by = append(by, n.Name+": "+f.Message)
			}
		}
	}
	return by
}

func (o *observation) listener(l *v1alpha1.Listener, state string, pools map[string]string) listenerStatus {
	s := listenerStatus{partStatus{l.Name, state, offline, ""}, l.Pool}
	refused := o.refused(spec.ListenerName(o.balancer, l.Name))
	for _, p := range o.balancer.Status.Listeners {
		if p.Name == l.Name && !p.Accepted {
			s.ProvisioningStatus, s.OperatingStatus, s.Message = rejected, failed, p.Message
			return s
		}
	}
	switch {
	case l.Enabled != nil && !*l.Enabled, len(o.nodes) == 0:
	case len(refused) == len(o.nodes):
		s.OperatingStatus, s.Message = failed, refused[0]
	case len(refused) > 0:
		s.OperatingStatus, s.Message = degraded, refused[0]
	case pools[l.Pool] != "":
		s.OperatingStatus = pools[l.Pool]
	}
	return s
}

func (o *observation) pool(p *v1alpha1.Pool, state string) poolStatus {
	s := poolStatus{partStatus{p.Name, state, offline, ""}, []partStatus{}}
	reasons := map[string]string{} // of rejected members
	for _, known := range o.balancer.Status.Pools {
		if known.Name == p.Name && !known.Accepted {
			s.ProvisioningStatus, s.Message = rejected, known.Message
			for _, m := range known.Members {
				reasons[m.Name] = m.Message
			}
		}
	}
	var all []string
	for i := range p.Members {
		m := o.member(p, &p.Members[i], state)
		if why, known := reasons[m.Name]; known {
			m.ProvisioningStatus, m.OperatingStatus, m.Message = rejected, failed, why
		}
		all = append(all, m.OperatingStatus)
		s.Members = append(s.Members, m)
	}
	s.OperatingStatus = summary(all)
	return s
}

func (o *observation) member(p *v1alpha1.Pool, m *v1alpha1.Member, state string) partStatus {
	name := memberName(m)
	s := partStatus{name, state, offline, ""}
	if m.Enabled != nil && !*m.Enabled || len(o.nodes) == 0 {
		return s
	}
	served, probed := false, false
	for _, l := range o.balancer.Spec.Listeners {
		if l.Pool != p.Name {
			continue
		}
		service := spec.ListenerName(o.balancer, l.Name)
		at := slices.IndexFunc(o.services, func(s lb.Service) bool { return s.Name == service })
		if at < 0 {
			continue
		}
		served, probed = true, probed || o.services[at].Health != nil
		for _, d := range o.dead {
			if d.Backend == name && slices.Contains(d.Services, service) {
				s.OperatingStatus, s.Message = failed, d.Nodes[0]+": "+d.Message
				return s
			}
		}
	}
	switch {
	case !served:
	case m.Weight != nil && *m.Weight == 0:
		s.OperatingStatus = draining
	case !probed:
		s.OperatingStatus = noMonitor
	case o.partial:
		s.OperatingStatus = unknown
	default:
		s.OperatingStatus = online
	}
	return s
}

// memberName returns address and port of a member, as in paths and in reports.
func memberName(m *v1alpha1.Member) string {
	address, err := netip.ParseAddr(string(m.Address))
	if err != nil {
		return fmt.Sprintf("%s:%d", m.Address, m.Port)
	}
	return netip.AddrPortFrom(address, uint16(m.Port)).String()
}
