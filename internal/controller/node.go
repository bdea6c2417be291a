// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
)

// Labels of the agents' pods, as the chart sets them.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
	nameFairlead   = "fairlead"
	componentAgent = "agent"
)

// nodeTracker tracks the readiness of nodes and their agents.
type nodeTracker struct {
	// grace is how long an agent may be not ready before a spare node replaces its node: an
	// update of the DaemonSet restarts agents one by one, each within seconds, while their
	// data plane continues.
	grace time.Duration
	// lastReady is when the agent of a node was last ready, or was first seen not to be.
	lastReady map[string]time.Time
	// ready are the nodes whose agents were ready when last seen.
	ready map[string]bool
	// cordoned is since when this process has seen nodes cordoned.
	cordoned map[string]time.Time
}

func newNodeTracker(grace time.Duration) nodeTracker {
	return nodeTracker{grace: grace, lastReady: map[string]time.Time{}, ready: map[string]bool{}, cordoned: map[string]time.Time{}}
}

// candidate is a node that may be in groups.
type candidate struct {
	// Node has Ready for the assignment: false if the node is not ready, or its agent has been
	// not ready for longer than grace. Such a node serves until a Ready spare replaces it.
	alloc.Node
	labels labels.Set
	// serving says that node and agent are ready.
	serving bool
	// cordoned is since when the node has been seen cordoned; zero if it isn't.
	cordoned time.Time
	// routes is the number of prefixes that it announces by its report without those that leave; 0 if
	// it isn't serving.
	routes   int32
	reported *v1alpha1.BalancerNodeStatus
	// report is the version of its report; none if it has none.
	report string
	// former says that the report has routes, which don't count as it may be of an earlier membership.
	former bool
}

// candidates returns the nodes that may be in groups, and the time until the result may change by
// itself; 0: never. Nodes that are being deleted, or labelled
// node.kubernetes.io/exclude-from-external-load-balancers, are excluded.
func (r *nodeTracker) candidates(nodes []corev1.Node, pods []corev1.Pod, now time.Time) (list []candidate, recheck time.Duration) {
	agents := map[string]bool{}
	for _, pod := range pods {
		agents[pod.Spec.NodeName] = agents[pod.Spec.NodeName] || podReady(&pod)
	}
	present := map[string]bool{}
	for _, n := range nodes {
		if excluded(&n) || !n.DeletionTimestamp.IsZero() {
			continue
		}
		present[n.Name] = true
		m := candidate{Node: alloc.Node{Name: n.Name}, labels: n.Labels, serving: nodeReady(&n) && agents[n.Name]}
		if agents[n.Name] || r.ready[n.Name] { // until now: nothing has changed in between
			r.lastReady[n.Name] = now
		}
		r.ready[n.Name] = agents[n.Name]
		left := r.grace - now.Sub(r.lastReady[n.Name])
		m.Ready = nodeReady(&n) && left > 0
		m.cordoned = r.cordonedSince(&n, now)
		if m.Ready && !agents[n.Name] {
			recheck = sooner(recheck, left)
		}
		list = append(list, m)
	}
	maps.DeleteFunc(r.lastReady, func(name string, _ time.Time) bool { return !present[name] })
	maps.DeleteFunc(r.ready, func(name string, _ bool) bool { return !present[name] })
	maps.DeleteFunc(r.cordoned, func(name string, _ time.Time) bool { return !present[name] })
	return list, recheck
}

// cordonedSince returns since when a node has been seen cordoned; the zero time if it isn't.
func (r *nodeTracker) cordonedSince(n *corev1.Node, now time.Time) time.Time {
	since, known := r.cordoned[n.Name]
	switch {
	case !n.Spec.Unschedulable:
		delete(r.cordoned, n.Name)
		return time.Time{}
	case !known:
		r.cordoned[n.Name], since = now, now
	}
	return since
}

// withoutReport returns the names of nodes whose agents have never reported, and of those that were
// started again after the report, sorted.
func withoutReport(nodes []corev1.Node, reports []v1alpha1.BalancerNode) (never, restarted []string) {
	boots := make(map[string]string, len(reports))
	for i := range reports {
		boots[reports[i].Name] = reports[i].Status.Observed.BootID
	}
	for i := range nodes {
		n := &nodes[i]
		boot, reported := boots[n.Name]
		switch now := n.Status.NodeInfo.BootID; {
		case !reported:
			never = append(never, n.Name)
		case boot != "" && now != "" && boot != now:
			restarted = append(restarted, n.Name)
		}
	}
	slices.Sort(never)
	slices.Sort(restarted)
	return never, restarted
}

// excluded reports whether a node's label keeps it out of all groups.
func excluded(n *corev1.Node) bool {
	_, is := n.Labels[corev1.LabelNodeExcludeBalancers]
	return is
}

// membersChanged reports whether an update changes the candidates of groups, or a group.
func membersChanged(before, now client.Object) bool {
	switch o := now.(type) {
	case *corev1.Node:
		old := before.(*corev1.Node)
		return nodeReady(o) != nodeReady(old) || o.Spec.Unschedulable != old.Spec.Unschedulable ||
			o.DeletionTimestamp.IsZero() != old.DeletionTimestamp.IsZero() || !maps.Equal(o.Labels, old.Labels) ||
			o.Status.NodeInfo.BootID != old.Status.NodeInfo.BootID
	case *corev1.Pod:
		old := before.(*corev1.Pod)
		return podReady(o) != podReady(old) || o.Spec.NodeName != old.Spec.NodeName
	case *v1alpha1.BalancerNode:
		old := before.(*v1alpha1.BalancerNode)
		return o.Status.Routes != old.Status.Routes || o.Status.Observed.BootID != old.Status.Observed.BootID || !slices.EqualFunc(o.Status.Withheld, old.Status.Withheld,
			func(a, b v1alpha1.WithheldRoute) bool { return a.Prefix == b.Prefix })
	}
	return true
}

// nodeReady reports whether a node is ready, and its network plugin has routes to pods.
func nodeReady(n *corev1.Node) bool {
	is := func(kind corev1.NodeConditionType) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	}
	return is(corev1.NodeReady) && !is(corev1.NodeNetworkUnavailable)
}

func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp.IsZero() && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
