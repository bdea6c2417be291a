// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/internal/alloc/placement"
)

// Labels of the agents' pods, as the chart sets them.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
	nameFairlead   = "fairlead"
	componentAgent = "agent"
)

// roll is what is known of nodes.
type roll struct {
	// grace is for how long an agent that isn't ready is waited for before a spare
	// takes its node's place: an update of the DaemonSet replaces agents one by one,
	// each in seconds, and their data plane serves on meanwhile.
	grace time.Duration
	// seen is when the agent of a node was last seen ready.
	seen map[string]time.Time
}

// member is a node that may be in groups.
type member struct {
	// Node is the node with Ready as groups are filled by it: a node that is cordoned,
	// or whose agent has been away for longer than the grace, isn't. Such a node
	// serves on until a spare that is Ready takes its place.
	placement.Node
	labels map[string]string
	// serving says that node and agent are ready.
	serving bool
}

// call returns the nodes that may be in groups, and how soon the answer may be another
// one if nothing changes; 0: never. Nodes that are being deleted, or labelled
// node.kubernetes.io/exclude-from-external-load-balancers, may not.
func (r *roll) call(nodes []corev1.Node, pods []corev1.Pod, now time.Time) (members []member, again time.Duration) {
	agents := map[string]bool{}
	for _, pod := range pods {
		agents[pod.Spec.NodeName] = agents[pod.Spec.NodeName] || podReady(&pod)
	}
	present := map[string]bool{}
	for _, n := range nodes {
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || !n.DeletionTimestamp.IsZero() {
			continue
		}
		present[n.Name] = true
		m := member{Node: placement.Node{Name: n.Name}, labels: n.Labels, serving: nodeReady(&n) && agents[n.Name]}
		if agents[n.Name] {
			r.seen[n.Name] = now
		}
		patience := r.grace - now.Sub(r.seen[n.Name])
		m.Ready = nodeReady(&n) && !n.Spec.Unschedulable && patience > 0
		if m.Ready && !agents[n.Name] && (again == 0 || patience < again) {
			again = patience
		}
		members = append(members, m)
	}
	for name := range r.seen {
		if !present[name] {
			delete(r.seen, name)
		}
	}
	return members, again
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func podReady(p *corev1.Pod) bool {
	if !p.DeletionTimestamp.IsZero() {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
