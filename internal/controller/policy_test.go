// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// policy has the conditions of a LoadBalancer follow the policy of its group, and the cluster's
// networks.
func policy(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/31")
	node := w.node("n1", map[string]string{"lb": "g"})
	g := w.group("g", 1)
	b := w.balancer("vm", nil)
	refused := func(members ...string) {
		w.Helper()
		w.awaitObject(b, fmt.Sprintf("the members %q to be refused", members), func() error {
			var got []string
			for _, m := range b.Status.Pools[0].Members {
				got = append(got, m.Name+": "+m.Message)
			}
			if !slices.Equal(got, members) {
				return fmt.Errorf("refused are %q", got)
			}
			return nil
		})
	}
	w.says(b, v1alpha1.ConditionReady, no, "NotAccepted")
	refused("10.0.0.1:80: address: 10.0.0.1 isn't in the group's spec.loadBalancers.memberNetworks")
	w.edit(g, func() { g.Spec.LoadBalancers.MemberNetworks = []v1alpha1.CIDR{"10.0.0.0/16"} })
	w.says(b, v1alpha1.ConditionReady, yes, "Served")
	refused()

	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	w.ready(node, true)
	w.says(b, v1alpha1.ConditionReady, no, "NotAccepted")
	const end = ", which isn't in the group's spec.loadBalancers.clusterNetworks"
	refused("10.0.0.1:80: address: 10.0.0.1 is in the network Node" + end)
	w.edit(g, func() { g.Spec.LoadBalancers.ClusterNetworks = []string{"Node"} })
	w.says(b, v1alpha1.ConditionReady, yes, "Served")

	svc := newService("internal")
	svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	w.create(svc)
	w.edit(b, func() { b.Spec.Pools[0].Members[0].Address = v1alpha1.IPAddress(svc.Spec.ClusterIP) })
	refused(svc.Spec.ClusterIP + ":80: address: " + svc.Spec.ClusterIP + " isn't in the group's spec.loadBalancers.memberNetworks")
	w.edit(g, func() { g.Spec.LoadBalancers.MemberNetworks = []v1alpha1.CIDR{"10.0.0.0/8"} })
	refused(svc.Spec.ClusterIP + ":80: address: " + svc.Spec.ClusterIP + " is in the network Service" + end)
	w.remove(svc)
	w.says(b, v1alpha1.ConditionReady, yes, "Served")

	w.pool("others", "10.0.0.9/32")
	w.edit(b, func() {
		b.Spec.Pools[0].Members[0].Address = "10.0.0.9"
		b.Spec.Segment, b.Spec.Address = &v1alpha1.Segment{Type: "vlan", ID: 7}, "198.51.100.1"
	})
	w.says(b, v1alpha1.ConditionAllocated, no, "SegmentNotAllowed")
	w.has(b, "")
	w.edit(g, func() { g.Spec.LoadBalancers.Segments = []v1alpha1.SegmentRange{{Type: "vlan", First: 7}} })
	w.has(b, "198.51.100.1")
	refused("10.0.0.9:80: 10.0.0.9 is in an AddressPool")
	w.edit(g, func() { g.Spec.LoadBalancers.Segments = nil })
	w.says(b, v1alpha1.ConditionAllocated, no, "SegmentNotAllowed")
	w.has(b, "198.51.100.1") // is not taken away
	// Another controller refuses it.
	w.awaitObject(b, "the listener to be refused", func() error {
		if l := b.Status.Listeners[0]; l.Accepted || l.Message != "segment: vlan 7 isn't in the group's spec.loadBalancers.segments" {
			return fmt.Errorf("listener %+v", l)
		}
		return nil
	})
}

// hosts are addresses of nodes and BGP peers in pools: no object gets one, and the pool names them. An
// object that has one keeps it.
func hosts(w *testCluster) {
	w.run()
	node := w.node("n1", map[string]string{"lb": "g"})
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.0"}}
	w.ready(node, true)
	peer := &v1alpha1.BGPPeer{}
	peer.Name = "tor"
	peer.Spec.Address, peer.Spec.ASN = "192.0.2.1", 65000
	w.create(peer)
	pool := w.pool("main", "192.0.2.0/30")
	says := func(text string) {
		w.Helper()
		w.awaitObject(pool, "the pool to say "+text, func() error {
			if got := fmt.Sprint(conditionsOf(pool)); !strings.Contains(got, text) {
				return errors.New(got)
			}
			return nil
		})
	}
	says("not assigned: 192.0.2.0 is an address of node n1; 192.0.2.1 is an address of BGPPeer tor")
	w.has(w.service("next"), "192.0.2.2")
	wanted := w.service("wanted", "addresses=192.0.2.0")
	w.says(wanted, v1alpha1.ConditionServiceAllocated, no, "AddressInUse")
	w.awaitEvents(wanted, "Warning AddressInUse")
	served := w.service("served", "addresses=192.0.2.3")
	w.has(served, "192.0.2.3")

	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.3"}}
	w.ready(node, true)
	if got := w.says(pool, v1alpha1.ConditionReady, no, "AddressConflict"); !strings.HasPrefix(got, "192.0.2.3 is an address of node n1 and of Service default/served; not assigned: 192.0.2.1 ") {
		w.Errorf("the pool says %q", got)
	}
	w.has(wanted, "192.0.2.0")
	w.has(served, "192.0.2.3")
	w.remove(served)
	w.says(w.service("again", "addresses=192.0.2.3"), v1alpha1.ConditionServiceAllocated, no, "AddressInUse")
	w.remove(peer)
	last := w.service("last")
	w.has(last, "192.0.2.1")
	w.report("n1", v1alpha1.BalancerNodeStatus{Addresses: []v1alpha1.IPAddress{"192.0.2.1"}})
	says("192.0.2.1 is an address of node n1")
	w.remove(last)
	w.says(w.service("after", "addresses=192.0.2.1"), v1alpha1.ConditionServiceAllocated, no, "AddressInUse")
}
