// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.io/fairlead/api/v1alpha1"
)

// scaling checks that groups with autoscaling follow their nodes' reports, and that another
// controller continues with their sizes.
func scaling(w *testCluster) {
	r := w.run()
	g := w.group("g", 1)
	w.edit(g, func() {
		g.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxSize: 4, PerNode: v1alpha1.NodeLoad{Addresses: 2, BitsPerSecond: 1_000_000}}
	})
	for n := range 4 {
		w.node(fmt.Sprint("n", n+1), map[string]string{"lb": "g"})
	}
	w.made(g, "n1")
	w.says(g, v1alpha1.ConditionScaled, yes, "EnoughNodes")
	w.report("n1", v1alpha1.BalancerNodeStatus{Traffic: v1alpha1.NodeTraffic{PacketsPerSecond: 9, BitsPerSecond: 2_500_000}})
	w.made(g, "n1", "n2", "n3")
	w.says(g, v1alpha1.ConditionScaled, yes, "ScaledUp")
	w.says(g, v1alpha1.ConditionReady, yes, "AllNodesReady")

	r.stop()
	w.run()
	w.pool("main", "192.0.2.0/28")
	for n := range 7 {
		w.service(fmt.Sprint("s", n))
	}
	w.made(g, "n1", "n2", "n3", "n4")
	if message := w.says(g, v1alpha1.ConditionScaled, no, "MaxSizeReached"); g.Status.Size != 4 || message != "from 3 to 4 nodes: 7 addresses, and 2 for each node" {
		w.Errorf("size %d: %s", g.Status.Size, message)
	}
	w.edit(g, func() { g.Spec.Autoscaling = nil })
	w.made(g, "n1")
	w.await("the condition to go", func() error {
		err := w.Get(w.Context(), keyOf(g), g)
		if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionScaled); err == nil && c != nil {
			err = fmt.Errorf("it is %+v", c)
		}
		return err
	})
}
