// SPDX-License-Identifier: Apache-2.0

package controller

import "fairlead.io/fairlead/api/v1alpha1"

// checkParts says of each listener and pool whether it can be served.
func checkParts(b *v1alpha1.LoadBalancer) (listeners []v1alpha1.PartStatus, pools []v1alpha1.PoolStatus) {
	for _, l := range b.Spec.Listeners {
		listeners = append(listeners, v1alpha1.PartStatus{Name: l.Name, Accepted: true})
	}
	for _, p := range b.Spec.Pools {
		pools = append(pools, v1alpha1.PoolStatus{PartStatus: v1alpha1.PartStatus{Name: p.Name, Accepted: true}})
	}
	return listeners, pools
}
