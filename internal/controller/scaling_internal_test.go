// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
)

// cachedCluster stands in for the caches.
type cachedCluster struct {
	client.Client
	groups  []v1alpha1.LoadBalancerGroup
	nodes   []corev1.Node
	pods    []corev1.Pod
	reports []v1alpha1.BalancerNode
}

func (c *cachedCluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.LoadBalancerGroupList:
		l.Items = c.groups
	case *corev1.NodeList:
		l.Items = c.nodes
	case *corev1.PodList:
		l.Items = c.pods
	case *v1alpha1.BalancerNodeList:
		l.Items = c.reports
	}
	return nil
}

// cachedNodes is the cache of the nodes' cluster.
type cachedNodes struct {
	cache.Cache
	cluster client.Reader
}

func (c cachedNodes) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.cluster.List(ctx, list, options...)
}

// scaledCluster is a cluster with one group. Its nodes carry a load in equal parts, and report it.
type scaledCluster struct {
	*testing.T
	cachedCluster
	recorder *events.FakeRecorder
	scaling  *scalingReconciler
	groups   *groupReconciler
	// writes counts the versions of the group, conflicts are the next writes that fail.
	writes, conflicts int
	// silent don't report, restarting have agents that have just started.
	silent, restarting string
	load               int64
}

// scaled runs a test on a cluster in a bubble's time. Its group has 2 to 6 nodes, which may carry 100
// packets per second each.
func scaled(t *testing.T, nodes int, test func(*scaledCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &scaledCluster{T: t, recorder: events.NewFakeRecorder(100)}
		for range nodes {
			c.addNode()
		}
		g := v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "1", Generation: 1, ResourceVersion: "0"}}
		g.Spec.Size = 2
		g.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxSize: 6, PerNode: v1alpha1.NodeLoad{PacketsPerSecond: 100}}
		c.cachedCluster.groups = []v1alpha1.LoadBalancerGroup{g}
		c.restart()
		test(c)
	})
}

// restart has another controller take over.
func (c *scaledCluster) restart() {
	d := newDeps(Options{AgentGrace: time.Minute, Log: slog.New(slog.DiscardHandler)})
	d.Client, d.nodes, d.events = c, cachedNodes{cluster: c}, c.recorder
	c.scaling = &scalingReconciler{deps: d}
	c.groups = &groupReconciler{deps: d, nodes: newNodeTracker(time.Minute), assigned: map[string][]string{}}
}

func (c *scaledCluster) addNode() {
	name := fmt.Sprint("n", len(c.nodes)+1)
	c.nodes = append(c.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	c.pods = append(c.pods, corev1.Pod{Spec: corev1.PodSpec{NodeName: name}, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}})
	c.reports = append(c.reports, v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	c.ready(name, true)
}

func (c *scaledCluster) ready(name string, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	at := slices.IndexFunc(c.nodes, func(n corev1.Node) bool { return n.Name == name })
	c.nodes[at].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
}

func (c *scaledCluster) group() *v1alpha1.LoadBalancerGroup { return &c.cachedCluster.groups[0] }

// List returns copies of groups, which reconcilers change.
func (c *scaledCluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l, is := list.(*v1alpha1.LoadBalancerGroupList); is {
		l.Items = []v1alpha1.LoadBalancerGroup{*c.group().DeepCopy()}
		return nil
	}
	return c.cachedCluster.List(ctx, list, options...)
}

func (c *scaledCluster) Status() client.SubResourceWriter { return groupStatus{c: c} }

// groupStatus writes the status of the group.
type groupStatus struct {
	client.SubResourceWriter
	c *scaledCluster
}

func (w groupStatus) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	if w.c.conflicts > 0 || object.GetResourceVersion() != w.c.group().ResourceVersion {
		w.c.conflicts--
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), nil)
	}
	w.c.writes++
	object.SetResourceVersion(strconv.Itoa(w.c.writes))
	*w.c.group() = *object.(*v1alpha1.LoadBalancerGroup).DeepCopy()
	return nil
}

// reconcile runs both reconcilers until they write nothing.
func (c *scaledCluster) reconcile() {
	c.Helper()
	for again := true; again; {
		before := c.writes
		again = false
		for _, run := range []reconcile.Func{c.scaling.reconcile, c.groups.reconcile} {
			_, err := run(c.Context(), reconcile.Request{})
			if err != nil && !apierrors.IsConflict(err) {
				c.Fatal(err)
			}
			again = again || err != nil
		}
		again = again || c.writes > before
	}
}

// pass has minutes pass.
func (c *scaledCluster) pass(minutes int) {
	c.Helper()
	for range minutes {
		time.Sleep(time.Minute)
		members := c.group().Status.Nodes
		for i := range c.reports {
			r := &c.reports[i]
			if strings.Contains(c.silent, r.Name) {
				continue
			}
			r.Status = v1alpha1.BalancerNodeStatus{Started: metav1.Unix(0, 0), Reported: metav1.Now()}
			if strings.Contains(c.restarting, r.Name) {
				r.Status.Started = metav1.NewTime(time.Now().Add(-time.Minute))
			} else if slices.ContainsFunc(members, func(n v1alpha1.GroupNode) bool { return n.Name == r.Name }) {
				r.Status.Traffic.PacketsPerSecond = c.load / int64(len(members))
			}
		}
		c.reconcile()
	}
}

// steady has minutes pass with these loads in turn, and expects that nothing is written.
func (c *scaledCluster) steady(minutes int, loads ...int64) {
	c.Helper()
	before := c.writes
	for minute := range minutes {
		c.load = loads[minute%len(loads)]
		c.pass(1)
	}
	if c.writes > before {
		c.Errorf("%d writes at rest", c.writes-before)
	}
}

// edit changes the spec of the group.
func (c *scaledCluster) edit(change func(*v1alpha1.LoadBalancerGroupSpec)) {
	c.Helper()
	change(&c.group().Spec)
	c.group().Generation++
	c.pass(1)
}

// expect compares the size, the number of nodes, the condition and the Events since the last call.
func (c *scaledCluster) expect(size, nodes int, reason string, events ...string) {
	c.Helper()
	s := c.group().Status
	if int(s.Size) != size || len(s.Nodes) != nodes || s.Nodes[nodes-1].Name != fmt.Sprint("n", nodes) {
		c.Errorf("size %d, nodes %v, want %d and %d", s.Size, s.Nodes, size, nodes)
	}
	if cond := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionScaled); (cond == nil) != (reason == "") || cond != nil && cond.Reason != reason {
		c.Errorf("condition %+v, want %s", cond, reason)
	}
	var got []string
	for len(c.recorder.Events) > 0 {
		got = append(got, <-c.recorder.Events)
	}
	if !slices.Equal(got, events) {
		c.Errorf("Events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(events, "\n"))
	}
}

// A group takes spare nodes in and gives them back as its load changes. At rest nothing is written,
// also if the load fluctuates, and a new controller continues with the size in the status.
func TestScaling(t *testing.T) {
	scaled(t, 5, func(c *scaledCluster) {
		c.pass(5)
		c.expect(2, 2, "EnoughNodes")
		set(&c.group().Status.Conditions, condition(v1alpha1.ConditionProgrammed, true, reasonAllNodes, "")) // as others do
		c.steady(60, 150, 199, 10)

		c.load = 360
		c.pass(1)
		c.expect(4, 4, "ScaledUp", "Normal ScaledUp from 2 to 4 nodes: 360 packets per second, and 100 for each node")
		c.steady(60, 320, 399)

		c.load = 900
		c.pass(1)
		c.expect(6, 5, "MaxSizeReached", "Warning MaxSizeReached from 4 to 6 nodes: 900 packets per second, and 100 for each node")
		c.pass(3)
		c.expect(6, 5, "NoSpareNodes", "Warning NoSpareNodes 5 nodes of 6: nodeSelector matches no spare node")
		c.steady(60, 900, 700, 480)
		c.addNode()
		c.pass(1)
		c.expect(6, 6, "MaxSizeReached", "Warning MaxSizeReached the group has maxSize nodes")
		c.restart()
		c.steady(60, 900, 700, 500)

		c.load = 360
		c.pass(9)
		c.expect(6, 6, "MaxSizeReached")
		c.pass(1)
		c.expect(5, 5, "ScaledDown", "Normal ScaledDown from 6 to 5 nodes: fewer than 6 were enough for 10m0s")
		c.pass(10)
		c.expect(4, 4, "ScaledDown", "Normal ScaledDown from 5 to 4 nodes: fewer than 5 were enough for 10m0s")
		c.steady(60, 360, 300)

		c.edit(func(s *v1alpha1.LoadBalancerGroupSpec) { s.Size = 5 })
		c.expect(5, 5, "EnoughNodes", "Normal EnoughNodes the load needs no more than 5 nodes")
		c.edit(func(s *v1alpha1.LoadBalancerGroupSpec) { s.Size, s.Autoscaling.MaxSize = 2, 3 })
		c.expect(3, 3, "MaxSizeReached", "Warning MaxSizeReached the group has maxSize nodes")
		c.edit(func(s *v1alpha1.LoadBalancerGroupSpec) { s.Autoscaling = nil })
		c.expect(2, 2, "")
	})
}

// No node is given back while the load of one isn't known. A condition says so if a ready node doesn't
// report, but not that agents restart.
func TestScalingWithoutReports(t *testing.T) {
	scaled(t, 4, func(c *scaledCluster) {
		c.load = 360
		c.pass(1)
		c.expect(2, 2, "EnoughNodes")
		c.pass(1)
		c.expect(4, 4, "ScaledUp", "Normal ScaledUp from 2 to 4 nodes: 360 packets per second, and 100 for each node")
		c.load, c.restarting = 0, "n2"
		c.steady(60, 0)
		c.restarting = ""
		c.ready("n3", false)
		c.pass(1)
		c.steady(60, 0)
		c.ready("n3", true)
		c.silent = "n1 n4"
		c.pass(5)
		c.expect(4, 4, "ScaledUp")
		c.restart()
		c.pass(1)
		c.expect(4, 4, "ScaledUp")
		c.pass(3)
		c.expect(4, 4, "ReportsMissing", "Warning ReportsMissing no node leaves the group: no report of the last 3m0s from n1; n4")
		c.steady(60, 0)
		c.silent = ""
		c.pass(1)
		c.expect(4, 4, "EnoughNodes", "Normal EnoughNodes the load needs no more than 4 nodes")
		c.pass(8)
		c.expect(4, 4, "EnoughNodes")
		c.pass(1)
		c.expect(3, 3, "ScaledDown", "Normal ScaledDown from 4 to 3 nodes: fewer than 4 were enough for 10m0s")
	})
}

// A node that is overloaded may not be able to report: its last traffic counts.
func TestScalingOfSilentNode(t *testing.T) {
	scaled(t, 4, func(c *scaledCluster) {
		c.load = 190
		c.pass(5)
		c.expect(2, 2, "EnoughNodes")
		c.silent = "n2"
		c.pass(4)
		c.expect(2, 2, "EnoughNodes")
		c.load = 260
		c.pass(1)
		c.expect(3, 3, "ScaledUp", "Normal ScaledUp from 2 to 3 nodes: 225 packets per second, and 100 for each node")
	})
}

// A decision that could not be written is made again.
func TestScalingConflict(t *testing.T) {
	scaled(t, 4, func(c *scaledCluster) {
		c.pass(1)
		c.load = 360
		c.conflicts = 1
		c.pass(1)
		c.expect(4, 4, "ScaledUp", "Normal ScaledUp from 2 to 4 nodes: 360 packets per second, and 100 for each node")
	})
}
