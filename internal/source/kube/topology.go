// SPDX-License-Identifier: Apache-2.0

package kube

import "slices"

// nearby leaves out the ready targets that this node had better not use, as
// kube-proxy does for packets from outside the cluster too (traffic policy
// Cluster, spec.trafficDistribution; KEP-2433 and KEP-3015): hints count only if
// every ready endpoint has one, and one of them is for this node, or else its
// zone. So balancers in different zones may use different endpoints.
func nearby(all []target, node, zone string) []target {
	byNode := hinted(all, func(t *target) []string { return t.nodes }, node)
	byZone := hinted(all, func(t *target) []string { return t.zones }, zone)
	far := func(target) bool { return false }
	switch {
	case byNode:
		far = func(t target) bool { return t.condition == ready && !slices.Contains(t.nodes, node) }
	case byZone:
		far = func(t target) bool { return t.condition == ready && !slices.Contains(t.zones, zone) }
	}
	return slices.DeleteFunc(all, far)
}

// hinted reports whether every ready target has hints of a sort, and one of them
// is for this place.
func hinted(all []target, hints func(*target) []string, here string) bool {
	found := false
	for i := range all {
		if all[i].condition != ready {
			continue
		}
		h := hints(&all[i])
		if len(h) == 0 {
			return false
		}
		found = found || here != "" && slices.Contains(h, here)
	}
	return found
}
