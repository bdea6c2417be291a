// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// backends returns the backends of a service: pods with NAT and DSR, and nodes, whose
// kube-proxy handles packets of the VIP, with the other modes. With traffic policy Local
// pods of this node are preferred, or nodes with a pod are used. Nodes that terminate tunnels know
// all nodes, so that packets sent to a node that has left the group reach the group.
func (t *translation) backends(svc *corev1.Service, s *lb.Service, all []target) []lb.Backend {
	if s.Forward != lb.L2DSR && s.Forward != lb.NAT {
		all = t.withoutRestarted(all)
	}
	if local(svc) {
		all = t.onNodes(s, all)
	}
	switch {
	case s.Forward == lb.DSR && local(svc):
		return t.localBackends(s, all)
	case s.Forward == lb.DSR && t.relayTarget:
		return t.relayedBackends(s, all)
	case s.Forward == lb.NAT:
		return pods(closest(all, t.Node, t.self().zone))
	case s.Forward == lb.DSR:
		return t.withNodes(s, pods(all), all)
	case local(svc):
		return weighted(t.nodesOf(s, all))
	case !slices.ContainsFunc(all, target.serves):
		return nil // nodes would have no pod to forward packets to
	}
	return weighted(t.allNodes(s))
}

// withoutRestarted removes the endpoints on nodes that were restarted, unless no other is ready.
func (t *translation) withoutRestarted(all []target) []target {
	on := func(e target) bool { return t.restarted(e.node) }
	if rest := slices.DeleteFunc(slices.Clone(all), on); anyReady(rest) {
		return rest
	}
	return all
}

// pods returns endpoints as backends.
func pods(all []target) []lb.Backend {
	backends := weighted(all)
	for i := range backends {
		backends[i].Ending = all[i].terminating
	}
	return backends
}

// serves reports whether the endpoint may get new flows.
func (t target) serves() bool { return t.condition >= spec.Terminating }

// weighted gives new flows to ready targets; terminating ones keep theirs. If all targets are
// terminating they continue to get new flows (KEP-1669).
func weighted(all []target) []lb.Backend {
	some := slices.ContainsFunc(all, func(t target) bool { return t.condition == spec.Ready })
	backends := make([]lb.Backend, len(all))
	for i, t := range all {
		backends[i] = lb.Backend{Address: t.address, Port: t.port, Weight: 1}
		if some && t.condition != spec.Ready || !t.serves() {
			backends[i].Weight = 0
		}
	}
	return backends
}

// relayedBackends returns all endpoints, as on the nodes that balance the service, if one is a pod of
// this node: it is for packets that those nodes send here. A node that has just left the group also
// gets packets from routers that still have its route.
func (t *translation) relayedBackends(s *lb.Service, all []target) []lb.Backend {
	if own, _ := t.split(all); len(own) == 0 {
		return nil // no node sends packets here
	}
	return t.join(s, all)
}

// localBackends returns the backends with traffic policy Local. New flows go to this node's pods.
// They go to pods of the group's other nodes
//   - while this node has no ready pod: it doesn't announce the address then, but routers may
//     still send packets;
//   - if clients keep their pods: all nodes have to choose alike, as routers spread the
//     connections of a client.
//
// While no node of the group has a ready pod, each announces the address, and new flows go to pods of
// nodes outside, which see the client too. Otherwise those get none: they may have connections that
// routers send through this node now.
func (t *translation) localBackends(s *lb.Service, all []target) []lb.Backend {
	own, others := t.split(all)
	outside := func(e target) bool { return !t.group.has(e.node) }
	inside := slices.DeleteFunc(slices.Clone(all), outside)
	members := slices.DeleteFunc(slices.Clone(others), outside)
	switch {
	case t.relayTarget && len(own) == 0:
		return nil // no node sends packets here
	case !anyReady(inside) && (anyReady(all) || !slices.ContainsFunc(inside, target.serves)):
		return t.join(s, all)
	case t.relayTarget:
		return t.join(s, inside, all)
	}
	s.Unannounced = !anyReady(own) && (anyReady(members) || !slices.ContainsFunc(own, target.serves))
	switch {
	case s.Affinity == lb.AffinityClient:
		return t.join(s, inside, others)
	case s.Unannounced:
		return t.join(s, members, own, others)
	default:
		return t.join(s, own, others)
	}
}

func anyReady(all []target) bool {
	return slices.ContainsFunc(all, func(e target) bool { return e.condition == spec.Ready })
}

// onNodes removes the endpoints that traffic policy Local excludes: packets for endpoints without a
// known node, such as manually created ones, or without an agent there, are translated in full.
func (t *translation) onNodes(s *lb.Service, all []target) []target {
	return slices.DeleteFunc(all, func(e target) bool {
		switch {
		case e.node == "":
			t.fail("endpoint %s has no nodeName: not used with externalTrafficPolicy Local", e.address)
		case s.Forward != lb.L2DSR && t.restarted(e.node):
			return true
		case s.Forward != lb.L2DSR && t.lacksAgent(e.node):
			t.fail("node %s has no agent: its endpoints are not used with externalTrafficPolicy Local", e.node)
			return true
		}
		return t.nodes[e.node] == nil
	})
}

// split returns this node's targets and the others.
func (t *translation) split(all []target) (own, others []target) {
	for _, e := range all {
		if e.node == t.Node {
			own = append(own, e)
		} else {
			others = append(others, e)
		}
	}
	return own, others
}

// join returns the targets that get new flows, then the targets of several lists that only keep
// their flows, each target once and without targets outside.
func (t *translation) join(s *lb.Service, used []target, unused ...[]target) []lb.Backend {
	backends := t.withNodes(s, pods(used), used)
	known := make(map[netip.AddrPort]bool, len(used))
	for _, e := range used {
		known[netip.AddrPortFrom(e.address, e.port)] = true
	}
	for _, list := range unused {
		for _, b := range t.withNodes(s, pods(list), list) {
			if b.Weight = 0; !known[netip.AddrPortFrom(b.Address, b.Port)] {
				backends = append(backends, b)
			}
		}
	}
	return slices.DeleteFunc(backends, func(b lb.Backend) bool { return b.Outside })
}

// withNodes sets the nodes of endpoints that aren't this node's pods; endpoints without a known
// node, such as manually created ones, or without an agent there, are outside. Hints of zones and
// nodes don't count: all nodes have to choose alike.
func (t *translation) withNodes(s *lb.Service, backends []lb.Backend, all []target) []lb.Backend {
	for i := range backends {
		name, b := all[i].node, &backends[i]
		if name == t.Node {
			continue
		}
		if !t.lacksAgent(name) {
			b.Node = t.nodes[name].relayAddress(s)
		}
		b.Outside = !b.Node.IsValid()
	}
	return backends
}

// relayAddress returns where packets of a service are sent to for a node's pods, an address of the
// other family if need be; invalid if the node is nil or has none.
func (n *node) relayAddress(s *lb.Service) (a netip.Addr) {
	if n == nil {
		return a
	}
	return cmp.Or(n.address(s.Address.Is4()), n.four, n.six)
}

// balancers returns the nodes that have a service with DSR whether or not they have a pod: the
// nodes of its group.
func (t *translation) balancers(s *lb.Service) (all []netip.Addr) {
	if s.Forward != lb.DSR {
		return nil
	}
	for _, name := range t.group.nodes {
		if a := t.nodes[name].relayAddress(s); a.IsValid() && !t.restarted(name) {
			all = append(all, a)
		}
	}
	return all
}

// nodesOf returns the nodes of targets, each in the best condition of its targets.
func (t *translation) nodesOf(s *lb.Service, all []target) []target {
	best := map[string]spec.EndpointCondition{}
	for _, e := range all {
		best[e.node] = max(best[e.node], e.condition)
	}
	return t.nodeTargets(s, func(n *node) spec.EndpointCondition { return best[n.name] })
}

// allNodes returns the ready nodes: each of them forwards packets to any pod. If none is ready
// the cause isn't the nodes, which may work: then it returns all that aren't leaving.
func (t *translation) allNodes(s *lb.Service) []target {
	nodes := func(used func(*node) bool) []target {
		return t.nodeTargets(s, func(n *node) spec.EndpointCondition {
			if !n.excluded && used(n) {
				return spec.Ready
			}
			return spec.Unusable
		})
	}
	if some := nodes(func(n *node) bool { return n.ready }); len(some) > 0 {
		return some
	}
	return nodes(func(n *node) bool { return !n.draining })
}

// nodeTargets returns nodes as targets.
func (t *translation) nodeTargets(s *lb.Service, is func(*node) spec.EndpointCondition) (list []target) {
	for _, n := range sortedNodes(t.nodes) {
		if s.Forward != lb.L2DSR && t.lacksAgent(n.name) {
			continue // it ends no tunnels
		}
		if address := n.address(s.Address.Is4()); is(n) >= spec.Terminating && address.IsValid() {
			list = append(list, target{endpoint: endpoint{address: address, node: n.name, condition: is(n)}, port: s.Port})
		}
	}
	return list
}

// membership returns which nodes may balance a service whose backends are nodes. With l2dsr
// these are the nodes of its group. Tunnels of any node of the cluster are terminated, as a
// node that joins or leaves the group may know that sooner or later than this one.
func (t *translation) membership(s *lb.Service) (m lb.Membership) {
	if m.Self = t.nodes[t.Node].address(s.Address.Is4()); s.Forward.Translates() || !m.Self.IsValid() {
		return lb.Membership{}
	}
	for _, n := range sortedNodes(t.nodes) {
		a := n.address(s.Address.Is4())
		if n.name != t.Node && a.IsValid() && (s.Forward != lb.L2DSR || t.group.has(n.name)) {
			m.Balancers = append(m.Balancers, a)
		}
	}
	return m
}

// add adds a service if it is valid, without invalid backends.
func (t *translation) add(s lb.Service) {
	s, found, valid := spec.Servable(s, t.check)
	for _, f := range found {
		t.fail("%s: %s", s.VIP, f.Error())
	}
	if valid {
		t.services = append(t.services, s)
		t.vips[s.VIP], t.names[s.Name] = true, s.VIP
	}
}

// check returns the errors of a service on this node.
func (t *translation) check(s *lb.Service) []lb.FieldError {
	found := spec.CheckOnNode(s, t.Limits, t.TunnelEnds)
	add := func(path, format string, args ...any) {
		found = append(found, lb.FieldError{Path: path, Err: fmt.Errorf(format, args...)})
	}
	vips := map[string]bool{}
	for i := range s.Backends {
		for field, at := range spec.Destinations(s, &s.Backends[i]) {
			if t.allocated.users[at] > 0 && at.Address != s.Address {
				path := fmt.Sprintf("backends[%d]%s", i, field)
				add(path, "%s is the address of a VIP", at.Address)
				vips[path] = true
			}
		}
	}
	forbidden := t.networks.Check
	if t.policy != nil {
		forbidden = func(s *lb.Service) []lb.FieldError { return t.policy.Check(s, t.networks.Networks) }
	}
	for _, f := range forbidden(s) {
		if !vips[f.Path] { // it is in a pool, too
			found = append(found, f)
		}
	}
	if err := s.Alike(t.services...); err != nil {
		found = append(found, lb.FieldError{Path: "firewallMark", Err: err})
	}
	if other, named := t.names[s.Name]; t.vips[s.VIP] {
		add("port", "duplicate")
	} else if named {
		add("name", "%s is also the name of %s", s.Name, other)
	}
	return found
}
