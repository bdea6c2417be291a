// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// report writes a node's BalancerNode, as its agent does.
func (w *testCluster) report(node string, status v1alpha1.BalancerNodeStatus) {
	w.Helper()
	status.Version, status.Started, status.Reported, status.DataPlane = "1.0.0", metav1.Now(), metav1.Now(), "xdp"
	r := &v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: status}
	w.await("a report of "+node, func() error {
		err := w.Create(w.Context(), r)
		if client.IgnoreAlreadyExists(err) == nil && err != nil {
			existing := &v1alpha1.BalancerNode{}
			if err := w.Get(w.Context(), client.ObjectKeyFromObject(r), existing); err != nil {
				return err
			}
			existing.Status = status
			return w.Update(w.Context(), existing)
		}
		return err
	})
}

// session is a peer of a report.
func session(name, problem string) v1alpha1.NodePeer {
	return v1alpha1.NodePeer{Name: name, Address: "192.0.2.1", Established: problem == "", Message: problem}
}

// sums waits until a peer has sessions with some of its nodes, and its condition a message.
func (w *testCluster) sums(p *v1alpha1.BGPPeer, established, nodes int32, message string) {
	w.Helper()
	w.awaitObject(p, fmt.Sprintf("%s: %d of %d: %s", p.Name, established, nodes, message), func() error {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionEstablished)
		if c == nil || p.Status.Established != established || p.Status.Nodes != nodes || c.Message != message ||
			(c.Status == yes) != (nodes > 0 && established == nodes) {
			return fmt.Errorf("status %+v", p.Status)
		}
		return nil
	})
}

// The statuses of peers and groups sum up node reports. Reports of nodes that are not ready, or
// without a ready agent, don't count: they may be old.
func reports(w *testCluster) {
	w.run()
	g := w.group("g", 2)
	p := &v1alpha1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "leaf"}, Spec: v1alpha1.BGPPeerSpec{
		PeerOptions: v1alpha1.PeerOptions{Address: "192.0.2.1", ASN: 65000}, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"lb": "g"}},
	}}
	w.create(p)
	const none = "no ready node with a ready agent"
	w.sums(p, 0, 0, none)
	label := map[string]string{"lb": "g"}
	n1, _ := w.node("n1", label), w.node("n2", label)
	w.node("other", nil)
	w.says(g, v1alpha1.ConditionProgrammed, no, "SomeNodes")
	w.sums(p, 0, 2, "on 0 of 2 nodes; n1: no report; n2: no report")
	up := v1alpha1.BalancerNodeStatus{Peers: []v1alpha1.NodePeer{session("other", "timeout"), session("leaf", "")}}
	down := v1alpha1.BalancerNodeStatus{Services: v1alpha1.ServiceCounts{Total: 2, Programmed: 1, Failed: 1}, Peers: []v1alpha1.NodePeer{session("leaf", "connection refused")}}
	w.report("n1", up)
	w.report("other", down)
	w.sums(p, 1, 2, "on 1 of 2 nodes; n2: no report")
	w.report("n2", down)
	w.sums(p, 1, 2, "on 1 of 2 nodes; n2: connection refused")
	w.edit(g, func() { g.Spec.DataPlane.Forward = "nat" })
	w.await("the condition to follow the group's generation", func() error {
		message := w.says(g, v1alpha1.ConditionProgrammed, no, "SomeNodes")
		c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionProgrammed)
		if c.ObservedGeneration != g.Generation || !strings.HasPrefix(message, "on 1 of 2 nodes; n2: some services failed") {
			return fmt.Errorf("it is %+v of %d", c, g.Generation)
		}
		return nil
	})
	w.report("n2", up)
	w.sums(p, 2, 2, "on all nodes")
	w.says(g, v1alpha1.ConditionProgrammed, yes, "AllNodes")
	down.Peers = nil
	w.report("n2", down)
	w.sums(p, 1, 2, "on 1 of 2 nodes; n2: the agent doesn't have this peer")
	w.agentReady("n2", false)
	w.sums(p, 1, 1, "on all nodes")
	w.says(g, v1alpha1.ConditionProgrammed, yes, "AllNodes")
	w.ready(n1, false)
	w.sums(p, 0, 0, none)
	w.says(g, v1alpha1.ConditionProgrammed, no, "NoReadyNodes")
}
