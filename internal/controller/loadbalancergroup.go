// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc/placement"
)

// Reasons of a group's condition Ready.
const (
	reasonAllNodesReady  = "AllNodesReady"
	reasonSomeNodesReady = "SomeNodesReady"
	reasonNoNodes        = "NoNodes"
	reasonNoReadyNodes   = "NoReadyNodes"
)

// groupReconciler fills groups with nodes, and gives those that have addresses to
// groups. All groups are one request, as they are one question.
type groupReconciler struct {
	*office
	roll roll
	// filled are the nodes of groups as last decided, by the groups' uid: the cache may
	// be behind.
	filled map[string][]string
	known  groupCounts
}

func newGroupReconciler(o *office) *groupReconciler {
	return &groupReconciler{
		office: o,
		roll:   roll{grace: o.options.AgentGrace, seen: map[string]time.Time{}},
		filled: map[string][]string{},
	}
}

func (r *groupReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	groups, members, again, err := r.look(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.fill(groups, members)
	served := r.serve(groups, members)
	// First the nodes, then whom they serve: so nobody is given to a group in which
	// agents don't know themselves yet.
	var errs []error
	for _, g := range groups {
		if err := r.publish(ctx, g, members, served.counts[g.Name]); apierrors.IsConflict(err) {
			return reconcile.Result{}, err
		} else if err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.Name, err))
			served.withhold(g.Name, r.groups)
		}
	}
	r.known.set(groups, served.counts)
	for _, owner := range r.groups.replace(served.groups) {
		r.wake(owner)
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// group is a group with its nodes as they are decided.
type group struct {
	*v1alpha1.LoadBalancerGroup
	filter filter
	// unsound says that a selector can't be understood: the group matches nothing.
	unsound error
	nodes   []string
}

// look reads groups, in the order of their creation, and nodes.
func (r *groupReconciler) look(ctx context.Context) (groups []*group, members []member, again time.Duration, err error) {
	var (
		list  v1alpha1.LoadBalancerGroupList
		nodes corev1.NodeList
		pods  corev1.PodList
	)
	for _, l := range []client.ObjectList{&list, &nodes, &pods} {
		if err := r.List(ctx, l); err != nil {
			return nil, nil, 0, err
		}
	}
	for i := range list.Items {
		if g := &list.Items[i]; g.DeletionTimestamp.IsZero() {
			made := &group{LoadBalancerGroup: g}
			made.filter, made.unsound = newFilter(g)
			groups = append(groups, made)
		}
	}
	slices.SortFunc(groups, compareAge)
	now := time.Now()
	r.recall(groups, now)
	members, again = r.roll.call(nodes.Items, pods.Items, now)
	return groups, members, again, nil
}

// recall takes over, of groups that are new to this process, what their statuses
// say: their nodes, and that agents that were ready may be so again soon.
func (r *groupReconciler) recall(groups []*group, now time.Time) {
	filled := map[string][]string{}
	for _, g := range groups {
		names, known := r.filled[string(g.UID)]
		for _, n := range g.Status.Nodes {
			if known {
				break
			}
			names = append(names, n.Name)
			if n.Ready {
				r.roll.seen[n.Name] = now
			}
		}
		filled[string(g.UID)] = names
	}
	r.filled = filled
}

// fill decides which nodes are in which group.
func (r *groupReconciler) fill(groups []*group, members []member) {
	var (
		wishes []placement.Group
		nodes  []placement.Node
	)
	for _, m := range members {
		nodes = append(nodes, m.Node)
	}
	for _, g := range groups {
		wish := placement.Group{Name: g.Name, Size: int(g.Spec.Size), Members: r.filled[string(g.UID)]}
		for _, m := range members {
			if g.unsound == nil && g.filter.nodes.Matches(labelSet(m.labels)) {
				wish.Eligible = append(wish.Eligible, m.Name)
			}
		}
		wishes = append(wishes, wish)
	}
	filled := placement.Members(wishes, nodes)
	for _, g := range groups {
		g.nodes = filled[g.Name]
		r.filled[string(g.UID)] = g.nodes
	}
}

// publish writes a group's status, if it is new.
func (r *groupReconciler) publish(ctx context.Context, g *group, members []member, c count) error {
	base := g.DeepCopy()
	g.Status.Nodes, g.Status.ReadyNodes = nil, 0
	for _, name := range g.nodes {
		ready := slices.ContainsFunc(members, func(m member) bool { return m.Name == name && m.serving })
		g.Status.Nodes = append(g.Status.Nodes, v1alpha1.GroupNode{Name: name, Ready: ready})
		if ready {
			g.Status.ReadyNodes++
		}
	}
	g.Status.Services, g.Status.Addresses = int32(c.services), int32(c.addresses)
	set(&g.Status.Conditions, groupCondition(g))
	if equality.Semantic.DeepEqual(g.Status, base.Status) {
		return nil
	}
	_, err := r.patchStatus(ctx, g.LoadBalancerGroup, base)
	return client.IgnoreNotFound(err)
}

// groupCondition says whether a group can serve. It can while one of its nodes can.
func groupCondition(g *group) metav1.Condition {
	ready, has := int(g.Status.ReadyNodes), len(g.nodes)
	message := fmt.Sprintf("%d nodes of %d, %d ready", has, g.Spec.Size, ready)
	c := condition(v1alpha1.ConditionReady, ready > 0, reasonSomeNodesReady, message)
	switch {
	case g.unsound != nil:
		c = condition(v1alpha1.ConditionReady, false, reasonBadSpec, g.unsound.Error())
	case has == 0:
		c.Reason = reasonNoNodes
	case ready == 0:
		c.Reason = reasonNoReadyNodes
	case ready == int(g.Spec.Size):
		c.Reason = reasonAllNodesReady
	}
	c.ObservedGeneration = g.Generation
	return c
}
