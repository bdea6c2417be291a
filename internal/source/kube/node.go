// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// node is a Node, reduced to the fields that are needed.
type node struct {
	name string
	uid  types.UID
	// boot is the ID of the machine's last start.
	boot  string
	ready bool
	// excluded nodes get no packets of load balancers.
	excluded bool
	zone     string
	// four and six are the node's internal addresses; invalid if it has none of the family.
	four, six netip.Addr
	// draining says that no agent will follow after the current one stops: the node is cordoned,
	// being deleted, or shutting down.
	draining bool
	labels   map[string]string
	// hops are its next hops in VLANs. With a fault in the annotation there are none.
	hops    []nextHop
	badHops string
	// addresses are all of its addresses, pods the CIDRs of its pods.
	addresses []netip.Addr
	pods      []netip.Prefix
}

func readNode(n *corev1.Node) *node {
	own := &node{
		name: n.Name, uid: n.UID, boot: n.Status.NodeInfo.BootID, zone: n.Labels[corev1.LabelTopologyZone], labels: n.Labels,
		draining: n.Spec.Unschedulable || n.DeletionTimestamp != nil,
	}
	own.addresses, own.pods = spec.NodeNetworks(n)
	hops, err := readNextHops(n.Annotations[nextHopsAnnotation])
	if own.hops = hops; err != nil {
		own.badHops = fmt.Sprintf("metadata.annotations[%s]: %v: no address in a VLAN is announced", nextHopsAnnotation, err)
	}
	_, own.excluded = n.Labels[corev1.LabelNodeExcludeBalancers]
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			own.ready = c.Status == corev1.ConditionTrue && n.DeletionTimestamp == nil
			own.draining = own.draining || !own.ready && shuttingDown(c)
		}
	}
	unavailable := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
	}
	own.ready = own.ready && !slices.ContainsFunc(n.Status.Conditions, unavailable)
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

// nextHopsAnnotation of a Node has its addresses in VLANs, to which routers send packets for tagged
// VIPs: "300=10.0.5.11,300=fd00:5::11".
const nextHopsAnnotation = v1alpha1.Group + "/next-hops"

// nextHop is a node's address in a VLAN.
type nextHop struct {
	vlan    uint16
	address netip.Addr
}

// maxNextHops bounds the next hops of a node.
const maxNextHops = 64

func readNextHops(text string) (hops []nextHop, err error) {
	if text == "" {
		return nil, nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		vlan, address, _ := strings.Cut(strings.TrimSpace(entry), "=")
		id, bad := strconv.ParseUint(vlan, 10, 16)
		hop := nextHop{vlan: uint16(id)}
		if bad != nil || id < 1 || id > lb.MaxVLAN {
			return nil, fmt.Errorf("%q: want a VLAN from 1 to %d, =, and an address", entry, lb.MaxVLAN)
		}
		if hop.address, err = netip.ParseAddr(address); err != nil || hop.address.Zone() != "" || hop.address.Is4In6() || !hop.address.IsGlobalUnicast() {
			return nil, fmt.Errorf("%q: bad address: want IPv4 or IPv6 unicast without a zone", entry)
		}
		if slices.ContainsFunc(hops, func(o nextHop) bool { return o.vlan == hop.vlan && o.address.Is4() == hop.address.Is4() }) {
			return nil, fmt.Errorf("%q: a second address of its family in the VLAN", entry)
		}
		if hops = append(hops, hop); len(hops) > maxNextHops {
			return nil, fmt.Errorf("more than %d next hops", maxNextHops)
		}
	}
	return hops, nil
}

// shuttingDown reports whether the machine is shutting down (graceful node shutdown, KEP-2000).
func shuttingDown(c corev1.NodeCondition) bool {
	return c.Reason == "KubeletNotReady" && strings.Contains(c.Message, "node is shutting down")
}

// address returns the node's address of a family.
func (n *node) address(four bool) netip.Addr {
	if four {
		return n.four
	}
	return n.six
}

// sameMember reports whether two versions of a node are equal as backends.
func (n *node) sameMember(o *node) bool {
	return n != nil && o != nil && n.ready == o.ready && n.excluded == o.excluded && n.four == o.four && n.six == o.six
}

// sameRoutes reports whether two versions of this node have the same peers and policies.
func (n *node) sameRoutes(o *node) bool {
	return maps.Equal(n.labels, o.labels) && slices.Equal(n.hops, o.hops) && n.badHops == o.badHops
}

// sortedNodes returns nodes by name.
func sortedNodes(all map[string]*node) []*node {
	return slices.SortedFunc(maps.Values(all), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
}

// group is a LoadBalancerGroup, reduced to the fields that are needed.
type group struct {
	// nodes are the names of its nodes, withoutAgent the nodes of the cluster that have none, and
	// restarted those whose agents haven't attached their data planes since their machines started.
	nodes, withoutAgent, restarted []string

	forward lb.Forward
	health  *lb.HealthCheck
	limits  lb.FlowLimits
	// filter selects the objects that it may serve, policy limits its LoadBalancers.
	filter spec.Filter
	policy spec.Policy
	bounds spec.Bounds
	// marks are the bits of firewall marks; 0 for none.
	marks uint32
	// problem is an error of its specification.
	problem string
}

func readGroup(g *v1alpha1.LoadBalancerGroup) *group {
	own := &group{forward: lb.DSR, limits: spec.Limits(g.Spec.DataPlane.Limits), bounds: spec.BoundsOf(g), marks: uint32(g.Spec.DataPlane.FirewallMarkMask)}
	for _, n := range g.Status.Nodes {
		own.nodes = append(own.nodes, n.Name)
	}
	own.withoutAgent, own.restarted = g.Status.NodesWithoutAgent, g.Status.NodesRestarted
	if text := g.Spec.DataPlane.Forward; text != "" && own.forward.UnmarshalText([]byte(text)) != nil {
		own.forward, own.problem = lb.DSR, fmt.Sprintf("spec.dataPlane.forward: unknown mode %q: dsr is used", text)
	}
	health, err := spec.HealthCheck(g.Spec.DataPlane.HealthCheck)
	if own.health = health; err != nil {
		own.problem = "spec.dataPlane.healthCheck: " + err.Error()
	}
	if own.filter, err = spec.NewFilter(&g.Spec.Services); err != nil {
		own.problem = "spec." + err.Error()
	}
	if own.policy, err = spec.NewPolicy(&g.Spec.LoadBalancers); err != nil {
		own.problem = "spec.loadBalancers: " + err.Error()
	}
	return own
}

// has reports whether a node is in the group.
func (g *group) has(node string) bool { return slices.Contains(g.nodes, node) }

// lacksAgent reports whether another node than this one has no agent, or none yet.
func (t *translation) lacksAgent(node string) bool {
	return node != t.Node && slices.Contains(t.group.withoutAgent, node) || t.restarted(node)
}

// restarted reports whether another node's agent hasn't attached its data plane since the machine
// started. Until then kube-proxy there takes connections, which end with the attachment; without
// kube-proxy the kernel routes packets of VIPs back to a router.
func (t *translation) restarted(node string) bool {
	return node != t.Node && slices.Contains(t.group.restarted, node)
}
