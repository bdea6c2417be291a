// SPDX-License-Identifier: Apache-2.0

package metric

import "fairlead.io/fairlead/internal/observe"

// cluster is how the API server is followed; nothing without one.
func cluster() collectable {
	return subject[*observe.Kubernetes]{
		things: func(l *look) []*observe.Kubernetes {
			if l.Status.Kubernetes == nil {
				return nil
			}
			return []*observe.Kubernetes{l.Status.Kubernetes}
		},
		metrics: []metric[*observe.Kubernetes]{
			gauge("fairlead_kubernetes_api_reachable", "1 while the API server of the cluster answers. With --kubernetes only, as the others of this name.",
				func(k *observe.Kubernetes) float64 { return truth(k.Reachable) }),
			gauge("fairlead_kubernetes_synced", "1 once all objects have been read; before, what an earlier agent saved may be served.",
				func(k *observe.Kubernetes) float64 { return truth(!k.Synced.IsZero()) }),
			gauge("fairlead_kubernetes_objects", "Services and LoadBalancers that are for this node.",
				func(k *observe.Kubernetes) float64 { return float64(k.Objects) }),
			gauge("fairlead_kubernetes_problems", "What keeps objects, or parts of them, from being served as they are written.",
				func(k *observe.Kubernetes) float64 { return float64(len(k.Problems)) }),
		},
	}.prepared()
}
