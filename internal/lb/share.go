// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"slices"
)

// Share shares out the room of a table among the namespaces that use it: max-min fair. The shares
// are in the order of the demands. A demand that isn't larger than an equal part of the room is
// fulfilled, and others have equal parts of the rest. The remainder of the division is in no share.
func Share(room int, demands []int) []int {
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(demands[a], demands[b]) })
	shares := slices.Clone(demands)
	for n, i := range order {
		if level := room / (len(order) - n); demands[i] > level {
			for _, j := range order[n:] {
				shares[j] = level
			}
			break
		}
		room -= demands[i]
	}
	return shares
}
