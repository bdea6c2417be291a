// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/internal/lb"
)

// backends are whom a service's packets are brought to: pods with NAT and DNAT, and
// nodes, whose kube-proxy takes packets of the VIP, with the other modes. With
// traffic policy Local only pods of this node, or nodes with a pod, are used. Nodes
// that end tunnels know all nodes, so that what routers go on sending to one that has
// left the group gets to where the group sends it.
func (t *translation) backends(svc *corev1.Service, s *lb.Service, all []target) []lb.Backend {
	switch {
	case s.Forward == lb.DNAT && (local(svc) || t.behind):
		return t.own(s, all)
	case s.Forward == lb.NAT:
		return weighed(nearby(all, t.self, t.zone()))
	case s.Forward == lb.DNAT:
		return t.placed(s, weighed(all), all)
	case local(svc):
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

// own are this node's pods, beside those of others, which get no new flows from here:
// they may have connections that come by this node since routers have chosen it.
func (t *translation) own(s *lb.Service, all []target) []lb.Backend {
	foreign := func(e target) bool { return e.node != t.self }
	own := weighed(slices.DeleteFunc(slices.Clone(all), foreign))
	if t.behind && len(own) == 0 {
		return nil // nobody sends anything here
	}
	others := slices.DeleteFunc(slices.Clone(all), func(e target) bool { return !foreign(e) })
	for _, b := range t.placed(s, weighed(others), others) {
		if b.Weight = 0; !b.Outside {
			own = append(own, b)
		}
	}
	return own
}

// placed says of endpoints that aren't this node's pods where they are: on a node, or
// on none that has an address, as those that somebody wrote by hand. Hints of zones
// and nodes don't count: all nodes that a router may choose have to choose alike.
func (t *translation) placed(s *lb.Service, backends []lb.Backend, all []target) []lb.Backend {
	for i := range backends {
		name, b := all[i].node, &backends[i]
		if name == t.self {
			continue
		}
		if n := t.nodes[name]; n != nil {
			b.Node = n.either(s.Address.Is4())
		}
		b.Outside = !b.Node.IsValid()
	}
	return backends
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

// nodeTargets are nodes by their addresses.
func (t *translation) nodeTargets(s *lb.Service, is func(*node) condition) (list []target) {
	for _, n := range sortedNodes(t.nodes) {
		if address := n.address(s.Address.Is4()); is(n) != 0 && address.IsValid() {
			list = append(list, target{endpoint: endpoint{address: address, node: n.name, condition: is(n)}, port: s.Port})
		}
	}
	return list
}

// membership says who may balance a service whose backends are nodes. With l2dsr these
// are the nodes of its group; tunnels of any node of the cluster are ended, as one that
// joins or leaves the group may have heard of it sooner or later than this one.
func (t *translation) membership(s *lb.Service) (m lb.Membership) {
	if m.Self = t.nodes[t.self].address(s.Address.Is4()); s.Forward.Translates() || !m.Self.IsValid() {
		return lb.Membership{}
	}
	for _, n := range sortedNodes(t.nodes) {
		a := n.address(s.Address.Is4())
		if n.name != t.self && a.IsValid() && (s.Forward != lb.L2DSR || t.group.has(n.name)) {
			m.Balancers = append(m.Balancers, a)
		}
	}
	return m
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
