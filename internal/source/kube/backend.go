// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/internal/lb"
)

// backends are whom a service's packets are brought to: pods with NAT and DNAT, and
// nodes, whose kube-proxy takes packets of the VIP, with the other modes. With
// traffic policy Local only pods of this node, or nodes with a pod, are used. Nodes
// to which others relay have to know their own pods only.
func (t *translation) backends(svc *corev1.Service, s *lb.Service, all []target) []lb.Backend {
	switch {
	case s.Forward.Translates() && (local(svc) || t.behind):
		return weighed(slices.DeleteFunc(all, func(e target) bool { return e.node != t.self }))
	case s.Forward == lb.NAT:
		return weighed(nearby(all, t.self, t.zone()))
	case s.Forward == lb.DNAT:
		return t.relayed(s, weighed(all), all)
	case local(svc):
		t.podsOnly = true
		return weighed(t.nodesOf(s, all))
	case len(all) == 0:
		return nil // no node would have anybody to give packets to
	}
	return weighed(t.allNodes(s))
}

// weighed gives new flows to ready targets; those that retire keep theirs. If all
// retire they go on serving (KEP-1669).
func weighed(all []target) []lb.Backend {
	some := slices.ContainsFunc(all, func(t target) bool { return t.condition == ready })
	backends := make([]lb.Backend, len(all))
	for i, t := range all {
		backends[i] = lb.Backend{Address: t.address, Port: t.port, Weight: 1}
		if some && t.condition == retiring {
			backends[i].Weight = 0
		}
	}
	return backends
}

// relayed says of pods of other nodes where they are. Hints of zones and nodes don't
// count: all nodes that a router may choose have to choose alike. Pods of a node
// that has no address, or is not known, can't be reached.
func (t *translation) relayed(s *lb.Service, backends []lb.Backend, all []target) []lb.Backend {
	reached := backends[:0]
	for i, b := range backends {
		if all[i].node != t.self {
			n := t.nodes[all[i].node]
			if n == nil || !n.either(s.Address.Is4()).IsValid() {
				t.fail("endpoint %s: node %s has no address", b.Address, all[i].node)
				continue
			}
			b.Node = n.either(s.Address.Is4())
		}
		reached = append(reached, b)
	}
	return reached
}

// nodesOf are the nodes on which the targets run, each in the best condition that
// one of its targets has.
func (t *translation) nodesOf(s *lb.Service, all []target) []target {
	best := map[string]condition{}
	for _, e := range all {
		best[e.node] = max(best[e.node], e.condition)
	}
	return t.nodeTargets(s, func(n *node) condition { return best[n.name] })
}

// allNodes are those that are ready: any of them brings packets to any pod.
func (t *translation) allNodes(s *lb.Service) []target {
	return t.nodeTargets(s, func(n *node) condition {
		if n.ready && !n.excluded {
			return ready
		}
		return 0
	})
}

// nodeTargets leaves the group's own nodes out: one of them would balance what
// another sends it, instead of giving it to its kube-proxy. With traffic policy
// Cluster others bring packets to their pods.
func (t *translation) nodeTargets(s *lb.Service, is func(*node) condition) (list []target) {
	var own []string
	for _, n := range sortedNodes(t.nodes) {
		address := n.address(s.Address.Is4())
		switch {
		case is(n) == 0 || !address.IsValid():
		case t.group.has(n.name):
			own = append(own, n.name)
		default:
			list = append(list, target{endpoint: endpoint{address: address, node: n.name, condition: is(n)}, port: s.Port})
		}
	}
	if len(own) > 0 && (t.podsOnly || len(list) == 0) {
		t.fail("nodes %s: balancers of the group itself, to which %s sends nothing: want dnat or nat, or pods on other nodes",
			strings.Join(own, ", "), s.Forward)
	}
	return list
}

// add takes a service if it is sound, and without the backends that aren't.
func (t *translation) add(s lb.Service) {
	found := t.check(&s)
	bad := map[int]bool{}
	for _, f := range found {
		t.fail("%s: %s", s.VIP, f.Error())
		var i int
		if n, _ := fmt.Sscanf(f.Path, "backends[%d]", &i); n == 1 {
			bad[i] = true
		}
	}
	if len(bad) > 0 {
		good := make([]lb.Backend, 0, len(s.Backends))
		for i, b := range s.Backends {
			if !bad[i] {
				good = append(good, b)
			}
		}
		s.Backends = good
		found = t.check(&s)
	}
	if len(found) == 0 {
		t.services = append(t.services, s)
	}
}

// check returns what is wrong with a service on this node.
func (t *translation) check(s *lb.Service) []lb.FieldError {
	found := append(s.Check(), t.limits.Check(s)...)
	add := func(path, format string, args ...any) {
		found = append(found, lb.FieldError{Path: path, Err: fmt.Errorf(format, args...)})
	}
	if s.Segment.Overlay() && !t.tunnelEnds {
		add("segment", "%s frames arrive at tunnel end points: this node's agent has none", s.Segment.Type)
	}
	for i := range t.services {
		switch o := &t.services[i]; {
		case o.VIP == s.VIP:
			add("port", "given twice")
		case o.Name == s.Name:
			add("name", "%s is %s's, too", s.Name, o.VIP)
		}
	}
	return found
}
