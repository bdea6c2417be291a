// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// node is what is kept of a Node.
type node struct {
	name  string
	ready bool
	// excluded nodes get no packets of load balancers.
	excluded bool
	zone     string
	// four and six are the node's internal addresses; invalid if it has none of the
	// family.
	four, six netip.Addr
	// leaving says that an agent that is told to end on the node goes for good: the
	// node is cordoned, being deleted, or shutting down.
	leaving bool
	labels  map[string]string
}

func readNode(n *corev1.Node) *node {
	own := &node{
		name: n.Name, zone: n.Labels[corev1.LabelTopologyZone], labels: n.Labels,
		leaving: n.Spec.Unschedulable || n.DeletionTimestamp != nil,
	}
	_, own.excluded = n.Labels[corev1.LabelNodeExcludeBalancers]
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			own.ready = c.Status == corev1.ConditionTrue && n.DeletionTimestamp == nil
			own.leaving = own.leaving || !own.ready && shuttingDown(c)
		}
	}
	for _, a := range n.Status.Addresses {
		address, err := netip.ParseAddr(a.Address)
		switch {
		case a.Type != corev1.NodeInternalIP || err != nil:
		case address.Unmap().Is4() && !own.four.IsValid():
			own.four = address.Unmap()
		case address.Is6() && !address.Is4In6() && !own.six.IsValid():
			own.six = address
		}
	}
	return own
}

// shuttingDown reports whether the kubelet says that its machine is about to stop
// (its graceful shutdown, KEP-2000).
func shuttingDown(c corev1.NodeCondition) bool {
	return c.Reason == "KubeletNotReady" && strings.Contains(c.Message, "node is shutting down")
}

// address is the node's of a family.
func (n *node) address(four bool) netip.Addr {
	if four {
		return n.four
	}
	return n.six
}

// either is the node's address of a family or, if it has none, of the other one.
func (n *node) either(four bool) netip.Addr {
	if a := n.address(four); a.IsValid() {
		return a
	}
	return n.address(!four)
}

// sameMember reports whether nothing differs in what makes a node a backend.
func (n *node) sameMember(o *node) bool {
	return n != nil && o != nil && n.ready == o.ready && n.excluded == o.excluded && n.four == o.four && n.six == o.six
}

// sortedNodes returns nodes by name.
func sortedNodes(all map[string]*node) []*node {
	return slices.SortedFunc(maps.Values(all), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
}
