// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
)

// Reasons of a group's condition Scaled.
const (
	reasonScaledUp       = "ScaledUp"
	reasonScaledDown     = "ScaledDown"
	reasonEnoughNodes    = "EnoughNodes"
	reasonMaxSizeReached = "MaxSizeReached"
	reasonNoSpareNodes   = "NoSpareNodes"
	reasonReportsMissing = "ReportsMissing"
)

const (
	// scalingInterval is the longest time between two decisions on sizes.
	scalingInterval = time.Minute
	// maxReportAge is the age from which on no report counts as recent: agents write one a minute. An
	// agent that was younger when it wrote may not have measured the traffic of a minute yet.
	maxReportAge = 3 * time.Minute
	// defaultScaleDownAfter is autoscaling's scaleDownAfter of groups that have none.
	defaultScaleDownAfter = 10 * time.Minute
)

// sizeOf returns how many nodes a group is to have. With autoscaling its status says so.
func sizeOf(g *v1alpha1.LoadBalancerGroup) int {
	if a := g.Spec.Autoscaling; a != nil {
		return int(min(max(g.Status.Size, g.Spec.Size), a.MaxSize))
	}
	return int(g.Spec.Size)
}

// scalingReconciler decides the sizes of groups with autoscaling by their nodes' reports, and
// writes them into the statuses, which the groupReconciler follows. It doesn't read the objects
// that groups serve, so frequent reports cost little. All groups are one request.
type scalingReconciler struct {
	*deps
	// groups has the groups with autoscaling, by UID.
	groups map[types.UID]scaling
}

// scaling is the history that a decision on a group's size needs.
type scaling struct {
	alloc.SizeHistory
	// reported is when all ready nodes last had a recent report.
	reported time.Time
}

func (r *scalingReconciler) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var (
		groups v1alpha1.LoadBalancerGroupList
		nodes  v1alpha1.BalancerNodeList
	)
	for _, l := range []client.ObjectList{&groups, &nodes} {
		if err := r.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Result{}, err
		}
	}
	reports := map[string]*v1alpha1.BalancerNodeStatus{}
	for i := range nodes.Items {
		reports[nodes.Items[i].Name] = &nodes.Items[i].Status
	}
	now, former := time.Now(), r.groups
	r.groups = map[types.UID]scaling{}
	var errs []error
	for i := range groups.Items {
		g := &groups.Items[i]
		if g.Spec.Autoscaling != nil {
			r.groups[g.UID] = former[g.UID]
		}
		if err := r.scale(ctx, g, reports, now); err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil || len(r.groups) == 0 {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: scalingInterval}, nil
}

// scale decides the size of a group and writes it. The group's history changes only if the write
// succeeds.
func (r *scalingReconciler) scale(ctx context.Context, base *v1alpha1.LoadBalancerGroup, reports map[string]*v1alpha1.BalancerNodeStatus, now time.Time) error {
	g := base.DeepCopy()
	if g.Spec.Autoscaling == nil {
		meta.RemoveStatusCondition(&g.Status.Conditions, v1alpha1.ConditionScaled)
		_, err := r.patchStatus(ctx, g, base)
		return client.IgnoreNotFound(err)
	}
	if int(g.Status.Size) != sizeOf(g) {
		return nil // the group is new or its spec has changed: nodes are assigned first
	}
	load := loadOf(g, reports, now)
	next := r.groups[g.UID].next(g, &load, now)
	c := next.condition(g, &load, now)
	g.Status.Size = int32(next.Size)
	set(&g.Status.Conditions, c)
	written, err := r.patchStatus(ctx, g, base)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.groups[g.UID] = next
	if written {
		r.recordEvents(g, base.Status.Conditions, []metav1.Condition{c})
	}
	return nil
}

// next decides the size of a group.
func (s scaling) next(g *v1alpha1.LoadBalancerGroup, load *groupLoad, now time.Time) scaling {
	if len(load.silent) == 0 || s.reported.IsZero() {
		s.reported = now
	}
	s.SizeHistory = alloc.SizeGroup(alloc.SizeRequest{
		Size: int(g.Status.Size), Nodes: len(g.Status.Nodes), Min: int(g.Spec.Size), Max: int(g.Spec.Autoscaling.MaxSize),
		Demands: load.demands, Complete: load.complete, DownAfter: scaleDownAfter(g),
	}, s.SizeHistory, now)
	return s
}

func scaleDownAfter(g *v1alpha1.LoadBalancerGroup) time.Duration {
	if d := g.Spec.Autoscaling.ScaleDownAfter; d != nil {
		return d.Duration
	}
	return defaultScaleDownAfter
}

// condition says whether the decided size follows the load, and why it differs from the one in the
// group's status. It has the load at a change of the size only.
func (s scaling) condition(g *v1alpha1.LoadBalancerGroup, load *groupLoad, now time.Time) metav1.Condition {
	size, nodes := int(g.Status.Size), len(g.Status.Nodes)
	c := condition(v1alpha1.ConditionScaled, true, reasonEnoughNodes, fmt.Sprintf("the load needs no more than %d nodes", s.Size))
	if s.Size == int(g.Spec.Autoscaling.MaxSize) {
		c = condition(v1alpha1.ConditionScaled, false, reasonMaxSizeReached, "the group has maxSize nodes")
	}
	c.ObservedGeneration = g.Generation
	switch old := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionScaled); {
	case s.Size > size:
		if c.Status == metav1.ConditionTrue {
			c.Reason = reasonScaledUp
		}
		c.Message = fmt.Sprintf("from %d to %d nodes: %s", size, s.Size, load.highest())
	case s.Size < size:
		c.Reason, c.Message = reasonScaledDown, fmt.Sprintf("from %d to %d nodes: fewer than %d were enough for %s", size, s.Size, size, scaleDownAfter(g))
	case nodes < size && now.Sub(s.Changed) >= alloc.SizePause:
		c.Status, c.Reason = metav1.ConditionFalse, reasonNoSpareNodes
		c.Message = fmt.Sprintf("%d nodes of %d: nodeSelector matches no spare node", nodes, size)
	case now.Sub(s.reported) >= maxReportAge:
		c.Status, c.Reason = metav1.ConditionFalse, reasonReportsMissing
		c.Message = fmt.Sprintf("no node leaves the group: no report of the last %s from %s", maxReportAge, named(load.silent))
	case old != nil && old.ObservedGeneration == g.Generation && old.Status == c.Status && (old.Reason == c.Reason || c.Status == metav1.ConditionTrue):
		c.Reason, c.Message = old.Reason, old.Message // why the size last changed
	}
	return c
}

// groupLoad is the load of a group's nodes.
type groupLoad struct {
	demands []alloc.Demand
	// complete is false if the traffic of some nodes isn't known.
	complete bool
	// silent are the ready nodes without a recent report.
	silent []string
}

// loadOf sums up the load of a group's nodes.
func loadOf(g *v1alpha1.LoadBalancerGroup, reports map[string]*v1alpha1.BalancerNodeStatus, now time.Time) groupLoad {
	load, most := groupLoad{complete: true}, g.Spec.Autoscaling.PerNode
	add := func(unit string, sum, perNode float64) {
		if perNode > 0 {
			load.demands = append(load.demands, alloc.Demand{Unit: unit, Load: sum, PerNode: perNode})
		}
	}
	add("addresses", float64(g.Status.Addresses), float64(most.Addresses))
	if most.BitsPerSecond == 0 && most.PacketsPerSecond == 0 {
		return load
	}
	var bits, packets float64
	for _, n := range g.Status.Nodes {
		if !n.Ready { // its traffic is with others
			load.complete = false
			continue
		}
		s := reports[n.Name]
		if s == nil || now.Sub(s.Reported.Time) > maxReportAge {
			load.complete = false
			load.silent = append(load.silent, n.Name)
		}
		if s == nil {
			continue
		}
		// The last reported traffic of a silent node counts: overload may be why it doesn't report.
		load.complete = load.complete && s.Reported.Sub(s.Started.Time) >= maxReportAge
		bits += float64(max(s.Traffic.BitsPerSecond, 0))
		packets += float64(max(s.Traffic.PacketsPerSecond, 0))
	}
	add("bits per second", bits, float64(most.BitsPerSecond))
	add("packets per second", packets, float64(most.PacketsPerSecond))
	return load
}

// highest says which demand needs most nodes.
func (l *groupLoad) highest() string {
	d := slices.MaxFunc(l.demands, func(a, b alloc.Demand) int { return cmp.Compare(a.Load/a.PerNode, b.Load/b.PerNode) })
	return fmt.Sprintf("%.0f %s, and %.0f for each node", d.Load, d.Unit, d.PerNode)
}

// loadChanged reports whether an update may change the size of a group.
func loadChanged(before, now client.Object) bool {
	switch o := now.(type) {
	case *v1alpha1.BalancerNode:
		return o.Status.Traffic != before.(*v1alpha1.BalancerNode).Status.Traffic
	case *v1alpha1.LoadBalancerGroup:
		old := before.(*v1alpha1.LoadBalancerGroup)
		return o.Generation != old.Generation || o.Status.Size != old.Status.Size || o.Status.Addresses != old.Status.Addresses ||
			!equality.Semantic.DeepEqual(o.Status.Nodes, old.Status.Nodes)
	}
	return true
}
