// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// An agent goes for good with its node, or out of its groups, and not because the
// kubelet is silent.
func TestLeaving(t *testing.T) {
	notReady := func(status corev1.ConditionStatus, reason, message string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message}}
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		member string
		want   string // in the reason
	}{
		"stays":     {func(*corev1.Node) {}, "lb1", ""},
		"silent":    {notReady(corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."), "lb1", ""},
		"unhealthy": {notReady(corev1.ConditionFalse, "KubeletNotReady", "container runtime is down"), "lb1", ""},
		"shut down": {notReady(corev1.ConditionFalse, "KubeletNotReady", "node is shutting down"), "lb1", "node"},
		"cordoned":  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, "lb1", "node"},
		"deleted":   {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "lb1", "node"},
		"no group":  {func(*corev1.Node) {}, "lb2", "group"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCache(xdpLimits())
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lb1"}}
			notReady(corev1.ConditionTrue, "KubeletReady", "")(n)
			c.change(n)
			w.Set(n)
			g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
			g.Status.Nodes = []v1alpha1.GroupNode{{Name: c.member}}
			w.Set(g)
			w.Flush()
			if got := w.Leaving(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("leaving because of %q, want %q in it", got, c.want)
			}
		})
	}
}
