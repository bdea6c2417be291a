// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"net/netip"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.io/fairlead/internal/spec"
)

// slice is an EndpointSlice, reduced to the fields that are needed.
type slice struct {
	four      bool // its endpoints are IPv4's
	ports     []spec.SlicePort
	endpoints []endpoint
}

// endpoint is a usable endpoint.
type endpoint struct {
	address netip.Addr
	// node is the endpoint's node; empty if unknown.
	node        string
	condition   spec.EndpointCondition
	terminating bool
	// zones and nodes are topology hints; none for all.
	zones, nodes []string
}

// readSlice reads an EndpointSlice into about 100 bytes an endpoint: a cluster has many.
func readSlice(es *discoveryv1.EndpointSlice) *slice {
	s := &slice{four: es.AddressType == discoveryv1.AddressTypeIPv4}
	if !s.four && es.AddressType != discoveryv1.AddressTypeIPv6 {
		return s // FQDN endpoints aren't supported
	}
	s.ports = spec.SlicePorts(es)
	for i := range s.ports {
		p := &s.ports[i]
		p.Name, p.Protocol = intern(p.Name), corev1.Protocol(intern(string(p.Protocol)))
	}
	s.endpoints = make([]endpoint, 0, len(es.Endpoints))
	for i := range es.Endpoints {
		if e, usable := readEndpoint(&es.Endpoints[i]); usable && e.address.Is4() == s.four {
			s.endpoints = append(s.endpoints, e)
		}
	}
	return s
}

// readEndpoint reads an endpoint and reports whether it is usable.
func readEndpoint(from *discoveryv1.Endpoint) (e endpoint, usable bool) {
	if len(from.Addresses) == 0 {
		return e, false
	}
	// All addresses are of one endpoint; proxies use the first.
	address, err := netip.ParseAddr(from.Addresses[0])
	if e.condition = spec.ConditionOf(&from.Conditions); err != nil || e.condition == spec.Unusable {
		return e, false
	}
	e.terminating = deref(from.Conditions.Terminating)
	e.address, e.node = address.Unmap(), intern(deref(from.NodeName))
	if from.Hints != nil {
		for _, zone := range from.Hints.ForZones {
			e.zones = append(e.zones, intern(zone.Name))
		}
		for _, node := range from.Hints.ForNodes {
			e.nodes = append(e.nodes, intern(node.Name))
		}
	}
	return e, true
}

// serviceSlices are the slices of Services.
type serviceSlices struct {
	// all has the slices of each Service, by name; owners has the Service of each slice.
	all    map[Object]map[string]*slice
	owners map[Object]Object
}

// set adds or replaces a slice, and returns the Services whose slices have changed.
func (s *serviceSlices) set(id Object, es *discoveryv1.EndpointSlice) (changed []Object) {
	owner := Object{Kind: KindService, Namespace: es.Namespace, Name: es.Labels[discoveryv1.LabelServiceName]}
	if s.owners[id] != owner {
		changed = append(changed, s.delete(id))
	}
	if owner.Name == "" {
		return changed // without Service
	}
	if s.all[owner] == nil {
		s.all[owner] = map[string]*slice{}
	}
	s.all[owner][id.Name], s.owners[id] = readSlice(es), owner
	return append(changed, owner)
}

// delete removes a slice, and returns its Service; the zero Object if it is unknown.
func (s *serviceSlices) delete(id Object) Object {
	owner := s.owners[id]
	delete(s.owners, id)
	delete(s.all[owner], id.Name)
	if len(s.all[owner]) == 0 {
		delete(s.all, owner)
	}
	return owner
}

// contain reports whether a condition holds for an endpoint of a Service.
func (s *serviceSlices) contain(svc Object, is func(*endpoint) bool) bool {
	for _, one := range s.all[svc] {
		for i := range one.endpoints {
			if is(&one.endpoints[i]) {
				return true
			}
		}
	}
	return false
}

// readyOn counts the ready endpoints of a Service on a node.
func (s *serviceSlices) readyOn(svc Object, node string) int {
	ready := map[netip.Addr]bool{}
	for _, one := range s.all[svc] {
		for i := range one.endpoints {
			if e := &one.endpoints[i]; e.condition == spec.Ready && e.node == node {
				ready[e.address] = true
			}
		}
	}
	return len(ready)
}

// target is an endpoint with the target port of a Service's port.
type target struct {
	endpoint
	port uint16
}

// portSlice is a slice with the number that a port has there.
type portSlice struct {
	*slice
	number uint16
}

// indexPorts returns the slices of each port, so that a Service with many ports doesn't search
// all slices for each.
func indexPorts(all map[string]*slice) map[spec.EndpointPort][]portSlice {
	index := map[spec.EndpointPort][]portSlice{}
	for _, s := range all {
		for _, p := range s.ports {
			index[p.EndpointPort] = append(index[p.EndpointPort], portSlice{s, p.Number})
		}
	}
	return index
}

// targets returns the endpoints of the slices of a port, sorted, each once even if several slices
// have it.
func targets(all []portSlice) []target {
	found := map[netip.AddrPort]target{}
	for _, s := range all {
		for _, e := range s.endpoints {
			id := netip.AddrPortFrom(e.address, s.number)
			if known, twice := found[id]; !twice || e.condition > known.condition {
				found[id] = target{endpoint: e, port: s.number}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b target) int {
		return netip.AddrPortFrom(a.address, a.port).Compare(netip.AddrPortFrom(b.address, b.port))
	})
}

// intern stores equal names, of which slices have thousands, once.
func intern(name string) string { return unique.Make(name).Value() }

// deref returns the zero value for nil.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// closest removes the ready targets that topology hints exclude for this node, as kube-proxy does
// for traffic from outside the cluster too (traffic policy Cluster, spec.trafficDistribution;
// KEP-2433 and KEP-3015): hints count only if every ready endpoint has one, and one is for
// this node, or else its zone. Balancers in different zones may use different endpoints.
func closest(all []target, node, zone string) []target {
	hints, here := func(t *target) []string { return t.nodes }, node
	if !hinted(all, hints, here) {
		hints, here = func(t *target) []string { return t.zones }, zone
		if !hinted(all, hints, here) {
			return all
		}
	}
	return slices.DeleteFunc(all, func(t target) bool { return t.condition == spec.Ready && !slices.Contains(hints(&t), here) })
}

// hinted reports whether every ready target has hints of a kind, and one of them is for this
// place.
func hinted(all []target, hints func(*target) []string, here string) bool {
	found := false
	for i := range all {
		if all[i].condition != spec.Ready {
			continue
		}
		h := hints(&all[i])
		if len(h) == 0 {
			return false
		}
		found = found || here != "" && slices.Contains(h, here)
	}
	return found
}
