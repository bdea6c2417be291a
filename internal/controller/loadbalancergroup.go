// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/spec"
)

// Reasons of a group's condition Ready.
const (
	reasonAllNodesReady  = "AllNodesReady"
	reasonSomeNodesReady = "SomeNodesReady"
	reasonNoNodes        = "NoNodes"
	reasonNoReadyNodes   = "NoReadyNodes"
)

// groupReconciler assigns nodes to groups, and units of owners to groups. All groups are one
// request.
type groupReconciler struct {
	*deps
	nodes nodeTracker
	// assigned has the last decided nodes of groups, by UID, as the cache may be stale.
	assigned map[string][]string
	// joined has the versions of the reports that nodes had when they joined their group, and still
	// have.
	joined map[string]string
}

func (r *groupReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	groups, nodes, recheck, err := r.read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	recheck = sooner(recheck, r.assignNodes(groups, nodes, time.Now()))
	placed := r.place(groups)
	// Nodes are published first, so that the agents of a group know their membership
	// before they get services.
	var errs []error
	for _, g := range groups {
		if err := r.publish(ctx, g, placed.counts[g.Name]); apierrors.IsConflict(err) {
			return reconcile.Result{}, err
		} else if err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.Name, err))
			placed.keep(g.Name, r.groups)
		}
	}
	for _, owner := range r.groups.replace(placed.groups) {
		r.enqueue(owner)
	}
	return reconcile.Result{RequeueAfter: recheck}, errors.Join(errs...)
}

// group is a LoadBalancerGroup with its nodes as decided.
type group struct {
	*v1alpha1.LoadBalancerGroup
	// selector selects nodes, filter Services and LoadBalancers.
	selector labels.Selector
	filter   spec.Filter
	// invalid is the error of a selector: the group matches nothing then.
	invalid error
	// size is how many nodes the group is to have.
	size  int
	nodes []v1alpha1.GroupNode
	// ready is the number of ready nodes.
	ready int
	// addresses are those that the group serves, if a node is cordoned.
	addresses []netip.Addr
	// withoutAgent are the nodes of the cluster without a report, restarted those without one of their
	// machine's last start.
	withoutAgent, restarted []string
	// leaving are the cordoned ones among the nodes.
	leaving []string
	// matching is the number of nodes that the selector selects, and excluded how many of them
	// have a label that excludes them. cordoned counts others that are cordoned.
	matching, excluded, cordoned int
}

// countNodes counts the nodes that the selector selects.
func (g *group) countNodes(nodes []corev1.Node) {
	for _, n := range nodes {
		if g.invalid != nil || !g.selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		g.matching++
		switch {
		case excluded(&n):
			g.excluded++
		case n.Spec.Unschedulable:
			g.cordoned++
		}
	}
}

// readSelectors translates the selectors.
func (g *group) readSelectors() {
	if g.selector, g.invalid = spec.Selector(&g.Spec.NodeSelector); g.invalid != nil {
		g.invalid = fmt.Errorf("nodeSelector: %w", g.invalid)
		return
	}
	g.filter, g.invalid = spec.NewFilter(&g.Spec.Services)
}

// read returns the groups, in the order of their creation, the nodes, and the delay until the next
// reconciliation.
func (r *groupReconciler) read(ctx context.Context) (groups []*group, candidates []candidate, recheck time.Duration, err error) {
	var (
		list    v1alpha1.LoadBalancerGroupList
		nodes   corev1.NodeList
		pods    corev1.PodList
		reports v1alpha1.BalancerNodeList
	)
	if err := errors.Join(r.List(ctx, &list), r.List(ctx, &reports), r.listNodes(ctx, &nodes, &pods)); err != nil {
		return nil, nil, 0, err
	}
	r.allocations.SetGroups(list.Items)
	withoutAgent, restarted := withoutReport(nodes.Items, reports.Items)
	for i := range list.Items {
		if g := &list.Items[i]; g.DeletionTimestamp.IsZero() {
			made := &group{LoadBalancerGroup: g, size: sizeOf(g), withoutAgent: withoutAgent, restarted: restarted}
			made.readSelectors()
			made.countNodes(nodes.Items)
			groups = append(groups, made)
		}
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	now := time.Now()
	r.restore(groups, now)
	candidates, recheck = r.nodes.candidates(nodes.Items, pods.Items, now)
	addRoutes(candidates, reports.Items)
	if slices.ContainsFunc(candidates, func(m candidate) bool { return !m.cordoned.IsZero() }) {
		err = r.readAddresses(ctx, groups)
	}
	return groups, candidates, recheck, err
}

// readAddresses reads which addresses groups serve.
func (r *groupReconciler) readAddresses(ctx context.Context, groups []*group) error {
	objects, err := r.listServed(ctx)
	for _, s := range objects {
		if at := slices.IndexFunc(groups, func(g *group) bool { return g.Name == s.group }); at >= 0 {
			groups[at].addresses = append(groups[at].addresses, s.addresses...)
		}
	}
	return err
}

// restore takes over, for groups new to this process, the nodes in their statuses. It
// assumes that the agents of ready nodes were ready until now.
func (r *groupReconciler) restore(groups []*group, now time.Time) {
	assigned := map[string][]string{}
	for _, g := range groups {
		names, known := r.assigned[string(g.UID)]
		for _, n := range g.Status.Nodes {
			if known {
				break
			}
			names = append(names, n.Name)
			if n.Ready {
				r.nodes.lastReady[n.Name] = now
			}
		}
		assigned[string(g.UID)] = names
	}
	r.assigned = assigned
}

// assignNodes assigns nodes to groups, and returns the time until the result may change by itself;
// 0: never.
func (r *groupReconciler) assignNodes(groups []*group, candidates []candidate, now time.Time) (recheck time.Duration) {
	var (
		requests []alloc.Group
		nodes    []alloc.Node
	)
	for _, m := range candidates {
		if m.cordoned.IsZero() {
			nodes = append(nodes, m.Node)
		}
	}
	for _, g := range groups {
		request := alloc.Group{Name: g.Name, Size: g.size, Members: r.assigned[string(g.UID)]}
		for _, m := range candidates {
			if g.invalid == nil && g.selector.Matches(m.labels) {
				request.Eligible = append(request.Eligible, m.Name)
			}
		}
		requests = append(requests, request)
	}
	assigned := alloc.PlaceNodes(requests, nodes)
	r.discountFormer(groups, candidates, assigned)
	recheck = r.addCordoned(groups, candidates, assigned, now)
	for _, g := range groups {
		r.assigned[string(g.UID)] = assigned[g.Name]
		for _, name := range assigned[g.Name] {
			ready := slices.ContainsFunc(candidates, func(m candidate) bool { return m.Name == name && m.serving })
			g.nodes = append(g.nodes, v1alpha1.GroupNode{Name: name, Ready: ready})
			if ready {
				g.ready++
			}
		}
	}
	return recheck
}

// publish writes a group's status if it has changed.
func (r *groupReconciler) publish(ctx context.Context, g *group, c count) error {
	base := g.DeepCopy()
	g.Status.Size, g.Status.Nodes, g.Status.ReadyNodes = int32(g.size), g.nodes, int32(g.ready)
	g.Status.NodesWithoutAgent, g.Status.NodesRestarted = g.withoutAgent, g.restarted
	g.Status.Services, g.Status.Addresses = int32(c.services), int32(c.addresses)
	set(&g.Status.Conditions, groupCondition(g))
	_, err := r.patchStatus(ctx, g.LoadBalancerGroup, base)
	return client.IgnoreNotFound(err)
}

// groupCondition says whether a group can serve, which needs one ready node.
func groupCondition(g *group) metav1.Condition {
	message := fmt.Sprintf("%d nodes of %d, %d ready", len(g.nodes), g.size, g.ready)
	if len(g.nodes) < g.size {
		message += fmt.Sprintf("; nodeSelector matches %d", g.matching)
		if g.excluded > 0 {
			message += fmt.Sprintf(", of which %d are excluded by their label %s", g.excluded, corev1.LabelNodeExcludeBalancers)
		}
		if g.cordoned > 0 {
			message += fmt.Sprintf(", %d cordoned", g.cordoned)
		}
	}
	if len(g.leaving) > 0 {
		message += "; cordoned, and serving until other nodes announce as many routes: " + strings.Join(g.leaving, ", ")
	}
	c := condition(v1alpha1.ConditionReady, g.ready > 0, reasonSomeNodesReady, message)
	switch {
	case g.invalid != nil:
		c = condition(v1alpha1.ConditionReady, false, reasonBadSpec, g.invalid.Error())
	case len(g.nodes) == 0:
		c.Reason = reasonNoNodes
	case g.ready == 0:
		c.Reason = reasonNoReadyNodes
	case g.ready >= g.size:
		c.Reason = reasonAllNodesReady
	}
	c.ObservedGeneration = g.Generation
	return c
}
