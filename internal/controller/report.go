// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/internal/spec"
)

// Reasons of conditions that sum up reports of nodes.
const (
	reasonAllNodes  = "AllNodes"
	reasonSomeNodes = "SomeNodes"
)

// reportDelay batches changes of reports, nodes and agents, servedDelay changes of the objects that
// groups serve: there are thousands of these, and reports follow them.
const (
	reportDelay = 250 * time.Millisecond
	servedDelay = time.Second
)

// A report may change the conditions of many objects. They are written one in findingPace, or faster
// if that took longer than findingTime, in which an agent reports again: others that write to the API
// server at the time would have to wait.
const (
	findingPace = 20 * time.Millisecond
	findingTime = 5 * time.Second
)

// reportReconciler sums up the BalancerNodes of nodes in the statuses of BGPPeers and
// LoadBalancerGroups, and decides the conditions of Services and LoadBalancers. All of them are one
// request.
type reportReconciler struct {
	*deps
	// revisions are the revisions of objects that groups serve.
	revisions map[alloc.Owner]revision
}

func (r *reportReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var (
		nodes   corev1.NodeList
		pods    corev1.PodList
		reports v1alpha1.BalancerNodeList
		peers   v1alpha1.BGPPeerList
		groups  v1alpha1.LoadBalancerGroupList
	)
	for _, l := range []client.ObjectList{&reports, &peers, &groups} {
		if err := r.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Result{}, err
		}
	}
	objects, err := r.listServed(ctx)
	if err == nil {
		err = r.listNodes(ctx, &nodes, &pods)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	current := currentReports(nodes.Items, pods.Items, reports.Items)
	var errs []error
	publish := func(object, base client.Object) (written bool) {
		written, err := r.patchStatus(ctx, object, base)
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("%s: %w", object.GetName(), err))
		}
		return written
	}
	for i := range peers.Items {
		p := peers.Items[i].DeepCopy()
		sumUpSessions(p, current)
		publish(p, &peers.Items[i])
	}
	members := map[string][]*report.Node{}
	for i := range groups.Items {
		g := groups.Items[i].DeepCopy()
		before := groups.Items[i].Status.Conditions
		members[g.Name] = reportsOfGroup(g, current)
		set(&g.Status.Conditions, programmedCondition(g, current))
		var announces []metav1.Condition
		if c := announcing(g, members[g.Name]); c != nil {
			announces = append(announces, *c)
			set(&g.Status.Conditions, *c)
		}
		if publish(g, &groups.Items[i]) {
			r.recordEvents(g, before, announces)
		}
	}
	now := time.Now()
	wait := r.find(objects, members, now)
	if r.options.Nodes != nil {
		next, err := r.removeReports(ctx, nodes.Items, reports.Items, now)
		wait, errs = sooner(wait, next), append(errs, err)
	}
	err = errors.Join(errs...)
	if len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !apierrors.IsConflict(err) }) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// removeReports deletes the objects of nodes that have left their cluster and write no reports any
// more. It returns the delay until the next removal; 0: never. In one cluster the Node owns them.
func (r *reportReconciler) removeReports(ctx context.Context, nodes []corev1.Node, reports []v1alpha1.BalancerNode, now time.Time) (next time.Duration, err error) {
	for i := range reports {
		n := &reports[i]
		if slices.ContainsFunc(nodes, func(o corev1.Node) bool { return o.Name == n.Name }) {
			continue
		}
		if left := maxReportAge - now.Sub(n.Status.Reported.Time); left > 0 {
			next = sooner(next, left)
			continue
		}
		statistics := &v1alpha1.BalancerNodeStatistics{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		asRead := client.Preconditions{ResourceVersion: &n.ResourceVersion}
		if err := client.IgnoreNotFound(r.Delete(ctx, statistics)); err != nil {
			return next, fmt.Errorf("statistics of node %s: %w", n.Name, err)
		}
		if err := client.IgnoreNotFound(r.Delete(ctx, n.DeepCopy(), asRead)); err != nil {
			return next, fmt.Errorf("report of node %s: %w", n.Name, err)
		}
		r.log.Info("report of a node that left deleted", "node", n.Name)
	}
	return next, nil
}

// listServed reads the objects that groups serve.
func (o *deps) listServed(ctx context.Context) (all []served, err error) {
	var services corev1.ServiceList
	var balancers v1alpha1.LoadBalancerList
	err = errors.Join(o.List(ctx, &services, client.UnsafeDisableDeepCopy), o.List(ctx, &balancers, client.UnsafeDisableDeepCopy))
	for i := range services.Items {
		if s, is := servedService(&services.Items[i]); is {
			all = append(all, s)
		}
	}
	for i := range balancers.Items {
		if s, is := servedBalancer(&balancers.Items[i]); is {
			all = append(all, s)
		}
	}
	return all, err
}

// find decides the conditions of all objects that groups with these nodes serve, and has objects
// with a changed condition reconciled. It returns the delay until the next call; 0 for never.
func (r *reportReconciler) find(objects []served, members map[string][]*report.Node, now time.Time) (next time.Duration) {
	revisions, found := map[alloc.Owner]revision{}, map[alloc.Owner]finding{}
	for i := range objects {
		s := &objects[i]
		nodes := members[s.group]
		rev := r.revisions[s.owner].follow(s, now)
		if len(nodes) == 0 {
			revisions[s.owner] = rev
			continue // the group's condition says so
		}
		c, wait := programmed(s, rev, nodes, now)
		if next = sooner(next, wait); wait == 0 {
			rev.reported = s.generation
		}
		revisions[s.owner] = rev
		if rev.reported == none {
			continue
		}
		var conditions []metav1.Condition
		for _, c := range []*metav1.Condition{c, healthy(s, nodes), announced(s, nodes)} {
			if c != nil {
				c.ObservedGeneration = rev.reported
				conditions = append(conditions, *c)
			}
		}
		found[s.owner] = finding{conditions, rev.reported}
	}
	r.revisions = revisions
	changed := r.findings.replace(found)
	for i, owner := range changed {
		r.enqueueOwner(owner, time.Duration(i)*min(findingPace, findingTime/time.Duration(len(changed))))
	}
	return next
}

// reportsOfGroup returns the reports of a group's ready nodes, by name.
func reportsOfGroup(g *v1alpha1.LoadBalancerGroup, current map[string]nodeReport) (nodes []*report.Node) {
	for _, n := range g.Status.Nodes {
		if r := current[n.Name]; r.Node != nil {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// nodeReport is a ready node with its report; nil for none.
type nodeReport struct {
	labels labels.Set
	*report.Node
}

// currentReports returns the reports of ready nodes whose agents are ready: other reports may be
// old.
func currentReports(nodes []corev1.Node, pods []corev1.Pod, all []v1alpha1.BalancerNode) map[string]nodeReport {
	agents := map[string]bool{}
	for i := range pods {
		agents[pods[i].Spec.NodeName] = agents[pods[i].Spec.NodeName] || podReady(&pods[i])
	}
	current := map[string]nodeReport{}
	for i := range nodes {
		if n := &nodes[i]; nodeReady(n) && agents[n.Name] {
			current[n.Name] = nodeReport{labels: n.Labels}
		}
	}
	for i := range all {
		if r, serving := current[all[i].Name]; serving {
			r.Node = report.Read(all[i].Name, &all[i].Status)
			current[all[i].Name] = r
		}
	}
	return current
}

// sumUpSessions sets the status of a peer.
func sumUpSessions(p *v1alpha1.BGPPeer, current map[string]nodeReport) {
	selector := labels.Everything()
	if p.Spec.NodeSelector != nil {
		var err error
		if selector, err = spec.Selector(p.Spec.NodeSelector); err != nil {
			selector = labels.Nothing() // as agents have it
		}
	}
	p.Status.Nodes, p.Status.Established = 0, 0
	var down []string
	for _, name := range slices.Sorted(maps.Keys(current)) {
		r := current[name]
		if !selector.Matches(r.labels) {
			continue
		}
		p.Status.Nodes++
		if r.Node == nil {
			down = append(down, name+": no report")
			continue
		}
		at := slices.IndexFunc(r.Status.Peers, func(s v1alpha1.NodePeer) bool { return s.Name == p.Name })
		switch {
		case at < 0:
			down = append(down, name+": the agent doesn't have this peer")
		case r.Status.Peers[at].Established:
			p.Status.Established++
		default:
			down = append(down, name+": "+r.Status.Peers[at].Message)
		}
	}
	c := ofNodes(v1alpha1.ConditionEstablished, int(p.Status.Established), int(p.Status.Nodes), down)
	c.ObservedGeneration = p.Generation
	set(&p.Status.Conditions, c)
}

// programmedCondition says whether the ready nodes of a group have programmed all that they serve.
func programmedCondition(g *v1alpha1.LoadBalancerGroup, current map[string]nodeReport) metav1.Condition {
	nodes, programmed := 0, 0
	var failing []string
	for _, n := range g.Status.Nodes {
		r, serving := current[n.Name]
		if !serving {
			continue
		}
		nodes++
		switch {
		case r.Node == nil:
			failing = append(failing, n.Name+": no report")
		case r.Status.Services.Failed > 0:
			failing = append(failing, n.Name+": some services failed: see failedServices of its BalancerNode")
		default:
			programmed++
		}
	}
	c := ofNodes(v1alpha1.ConditionProgrammed, programmed, nodes, failing)
	c.ObservedGeneration = g.Generation
	return c
}

// maxNamed is how many nodes or backends a condition names.
const maxNamed = 5

// ofNodes is a condition that is true if it holds on all of some nodes. Problems are of the others.
func ofNodes(kind string, holds, nodes int, problems []string) metav1.Condition {
	switch {
	case nodes == 0:
		return condition(kind, false, reasonNoReadyNodes, "no ready node with a ready agent")
	case holds == nodes:
		return condition(kind, true, reasonAllNodes, "on all nodes")
	}
	return condition(kind, false, reasonSomeNodes, fmt.Sprintf("on %d of %d nodes; %s", holds, nodes, named(problems)))
}

// reportsChanged reports whether an update changes an input of the summary.
func reportsChanged(before, now client.Object) bool {
	switch o := now.(type) {
	case *v1alpha1.BalancerNode:
		return !reflect.DeepEqual(summedUp(o), summedUp(before.(*v1alpha1.BalancerNode)))
	case *v1alpha1.LoadBalancerGroup:
		return o.Generation != before.GetGeneration() || !reflect.DeepEqual(o.Status.Nodes, before.(*v1alpha1.LoadBalancerGroup).Status.Nodes)
	case *v1alpha1.BGPPeer:
		return o.Generation != before.GetGeneration()
	case *corev1.Service:
		return o.ResourceVersion != before.GetResourceVersion() && (spec.ServedBy(o) != "" || spec.ServedBy(before.(*corev1.Service)) != "")
	case *v1alpha1.LoadBalancer:
		return o.ResourceVersion != before.GetResourceVersion()
	}
	return membersChanged(before, now)
}

// summedUp is the part of a report that is summed up.
func summedUp(n *v1alpha1.BalancerNode) v1alpha1.BalancerNodeStatus {
	s := n.Status
	s.Reported, s.Traffic = metav1.Time{}, v1alpha1.NodeTraffic{}
	return s
}
