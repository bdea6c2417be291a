// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller"
)

// Nodes and agents' pods of another cluster count, not nodes and pods of the control cluster. While
// the nodes' API server is away, decisions use the last known nodes.
func TestAPIServerNodesCluster(t *testing.T) {
	t.Parallel()
	w, n := newTestCluster(t), newTestCluster(t)
	w.mayDeleteReports()
	apart := func(o *controller.Options) { o.Nodes, o.DefaultClass = n.config, controller.DefaultClassAlways }
	w.pool("main", "203.0.113.0/24")
	g := w.group("g", 2)
	w.edit(g, func() { g.Spec.LoadBalancers.MemberNetworks = []v1alpha1.CIDR{"0.0.0.0/0"} })
	label := map[string]string{"lb": "g"}
	w.node("of-control", label)
	n1, n2 := n.node("n1", label), n.node("n2", nil)
	n1.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	n.ready(n1, true)
	first := w.run(apart)
	w.made(g, "n1")
	b := w.natBalancer("first", "192.0.2.1")
	w.balancerServed(b)
	if message := fmt.Sprint(b.Status.Pools); !strings.Contains(message, "192.0.2.1 is in the network Node") {
		t.Errorf("pools %s, want that the member is a Node", message)
	}

	svc := w.service("web")
	w.says(svc, v1alpha1.ConditionServiceAllocated, no, "NodesInOtherCluster")
	if got, err := w.addresses(svc); got != "" || err != nil {
		t.Errorf("a Service has the address %q, %v", got, err)
	}
	classless := newService("other")
	classless.Spec.LoadBalancerClass = nil
	w.create(classless)

	n.api.Stop(t)
	w.balancerServed(w.natBalancer("second", "192.0.2.9"))
	w.made(g, "n1")
	first.stop()
	w.run(apart)
	third := w.natBalancer("third", "192.0.2.9")
	w.says(w.service("late"), v1alpha1.ConditionServiceAllocated, no, "NodesInOtherCluster") // by the second controller
	w.made(g, "n1")
	n.api.Start(t)
	w.balancerServed(third)
	n.edit(n2, func() { n2.Labels = label })
	w.made(g, "n1", "n2")
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(classless), classless); err != nil || len(classless.Status.Conditions) > 0 {
		t.Errorf("a Service without class has %v, %v", classless.Status, err)
	}
	w.reportsRemoved()
}

// balancerServed waits until a LoadBalancer has an address and the group g.
func (w *testCluster) balancerServed(b *v1alpha1.LoadBalancer) {
	w.Helper()
	w.awaitObject(b, b.Name+" to be served", func() error {
		if b.Status.Address == "" || b.Status.Group != "g" {
			return fmt.Errorf("status %+v", b.Status)
		}
		return nil
	})
}

// mayDeleteReports gives the controller the right to delete reports.
func (w *testCluster) mayDeleteReports() {
	w.Helper()
	name := metav1.ObjectMeta{Name: "fairlead-controller-reports"}
	w.create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"balancernodes", "balancernodestatistics"}, Verbs: []string{"delete"}},
	}})
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "fairlead-controller", Namespace: home}},
	})
}

// reportsRemoved checks that a node's report is deleted when the node has left and been silent for
// minutes, and not before.
func (w *testCluster) reportsRemoved() {
	w.Helper()
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	for node, reported := range map[string]metav1.Time{"n1": long, "left": long, "joins": metav1.Now()} {
		w.create(&v1alpha1.BalancerNodeStatistics{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.BalancerNodeStatisticsStatus{Reported: reported}})
		w.create(&v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.BalancerNodeStatus{
			Version: "1", Started: long, Reported: reported, DataPlane: "xdp",
		}})
	}
	w.await("the report of a node that left to be deleted", func() error {
		err := w.Get(w.Context(), client.ObjectKey{Name: "left"}, &v1alpha1.BalancerNode{})
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	var reports v1alpha1.BalancerNodeList
	var statistics v1alpha1.BalancerNodeStatisticsList
	if err := w.List(w.Context(), &reports); err != nil {
		w.Fatal(err)
	}
	if err := w.List(w.Context(), &statistics); err != nil {
		w.Fatal(err)
	}
	if len(reports.Items) != 2 || len(statistics.Items) != 2 {
		w.Errorf("left are %d reports and %d statistics, want those of n1, which is there, and of a node that has written lately", len(reports.Items), len(statistics.Items))
	}
}
