// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// condition is what an endpoint is good for. The zero value is nothing: such
// endpoints are not kept.
type condition uint8

const (
	// retiring: serving but terminating. It keeps the flows that it has.
	retiring condition = iota + 1
	// ready also has those whose Service publishes addresses that are not ready:
	// EndpointSlices call them ready.
	ready
)

// slice is what is kept of an EndpointSlice.
type slice struct {
	four      bool // its endpoints are IPv4's
	ports     []slicePort
	endpoints []endpoint
}

// slicePort is a port of every endpoint of a slice.
type slicePort struct {
	name     string
	protocol corev1.Protocol
	number   uint16
}

// endpoint is one that can be used, and perhaps not by everybody.
type endpoint struct {
	address netip.Addr
	// node is where it runs; empty if that is not told.
	node string
	condition
	// zones and nodes are those that had better use it; none for all.
	zones, nodes []string
}

// readSlice takes what is needed of an EndpointSlice: some 100 bytes an endpoint,
// of which a cluster has many.
func readSlice(es *discoveryv1.EndpointSlice) *slice {
	s := &slice{four: es.AddressType == discoveryv1.AddressTypeIPv4}
	if !s.four && es.AddressType != discoveryv1.AddressTypeIPv6 {
		return s // names, which are nobody's to balance
	}
	for _, p := range es.Ports {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue // "all ports" is for other consumers than proxies
		}
		s.ports = append(s.ports, slicePort{name: intern(deref(p.Name)), protocol: defaulted(p.Protocol), number: uint16(*p.Port)})
	}
	s.endpoints = make([]endpoint, 0, len(es.Endpoints))
	for i := range es.Endpoints {
		if e, usable := readEndpoint(&es.Endpoints[i]); usable && e.address.Is4() == s.four {
			s.endpoints = append(s.endpoints, e)
		}
	}
	return s
}

// readEndpoint reports whether an endpoint is of any use.
func readEndpoint(from *discoveryv1.Endpoint) (e endpoint, usable bool) {
	if len(from.Addresses) == 0 {
		return e, false
	}
	// All addresses are the same endpoint's; proxies take the first.
	address, err := netip.ParseAddr(from.Addresses[0])
	if e.condition = conditionOf(from.Conditions); err != nil || e.condition == 0 {
		return e, false
	}
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

// conditionOf reads conditions as their API documentation has it: what is not told
// of ready is true, of serving it is as ready, of terminating false.
func conditionOf(c discoveryv1.EndpointConditions) condition {
	isReady := c.Ready == nil || *c.Ready
	serving := isReady
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch {
	case isReady:
		return ready
	case serving && c.Terminating != nil && *c.Terminating:
		return retiring
	}
	return 0
}

// target is an endpoint at the port that a Service's port leads to.
type target struct {
	endpoint
	port uint16
}

// targets are the endpoints of one family behind a port of a Service, each once
// though several slices may have it, sorted.
func targets(all map[string]*slice, port *corev1.ServicePort, four bool) []target {
	found := map[netip.AddrPort]target{}
	for _, s := range all {
		if s.four != four {
			continue
		}
		for _, p := range s.ports {
			if p.name != port.Name || p.protocol != defaulted(&port.Protocol) {
				continue
			}
			for _, e := range s.endpoints {
				id := netip.AddrPortFrom(e.address, p.number)
				if known, twice := found[id]; !twice || e.condition > known.condition {
					found[id] = target{endpoint: e, port: p.number}
				}
			}
		}
	}
	list := make([]target, 0, len(found))
	for _, t := range found {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b target) int {
		return netip.AddrPortFrom(a.address, a.port).Compare(netip.AddrPortFrom(b.address, b.port))
	})
	return list
}

// intern keeps equal names, of which slices have thousands, in one place.
func intern(name string) string { return unique.Make(name).Value() }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// defaulted is a protocol as the API documents what is not given.
func defaulted(p *corev1.Protocol) corev1.Protocol {
	if p == nil || *p == "" {
		return corev1.ProtocolTCP
	}
	return *p
}
