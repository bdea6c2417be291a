// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"maps"
	"testing"

	"fairlead.io/fairlead/internal/alloc/placement"
)

func TestServe(t *testing.T) {
	all := []string{"g", "h", "i"}
	for _, c := range []struct {
		name   string
		units  []placement.Unit
		groups []placement.Capacity
		want   map[string]string
	}{
		{"one after the other", []placement.Unit{unit("a", 1, all, ""), unit("b", 1, all, ""), unit("c", 1, all, "")}, []placement.Capacity{capacity("g", 3, 3), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "h", "c": "g"}},
		{"most addresses first", []placement.Unit{unit("a", 1, all, ""), unit("b", 1, all, ""), unit("c", 2, all, "")}, []placement.Capacity{capacity("g", 3, 3), capacity("h", 3, 3)},
			map[string]string{"a": "h", "b": "h", "c": "g"}},
		{"fewest addresses for each Ready node", []placement.Unit{unit("a", 2, all, "g"), unit("b", 2, all, "h"), unit("c", 1, all, "")}, []placement.Capacity{capacity("g", 3, 2), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "h", "c": "h"}},
		{"never for balance's sake", []placement.Unit{unit("a", 1, all, "g"), unit("b", 1, all, "g"), unit("c", 1, all, "g")}, []placement.Capacity{capacity("g", 1, 1), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "g", "c": "g"}},
		{"a new group fills with new units", []placement.Unit{unit("a", 5, all, "g"), unit("b", 1, all, ""), unit("c", 1, all, "")}, []placement.Capacity{capacity("g", 3, 3), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "h", "c": "h"}},
		{"its group is gone", []placement.Unit{unit("a", 1, all, "x")}, []placement.Capacity{capacity("g", 3, 3)}, map[string]string{"a": "g"}},
		{"its group doesn't match any more", []placement.Unit{unit("a", 1, []string{"h"}, "g")}, []placement.Capacity{capacity("g", 3, 3), capacity("h", 1, 0)}, map[string]string{"a": "h"}},
		{"its group has no nodes", []placement.Unit{unit("a", 1, all, "g")}, []placement.Capacity{capacity("g", 0, 0), capacity("h", 1, 0)}, map[string]string{"a": "h"}},
		{"nodes that aren't Ready keep it", []placement.Unit{unit("a", 1, all, "g")}, []placement.Capacity{capacity("g", 3, 0), capacity("h", 3, 3)}, map[string]string{"a": "g"}},
		{"no group has nodes: it waits where it is", []placement.Unit{unit("a", 1, all, "g"), unit("b", 1, all, "")}, []placement.Capacity{capacity("g", 0, 0), capacity("h", 0, 0)},
			map[string]string{"a": "g"}},
		{"nothing matches", []placement.Unit{unit("a", 1, nil, "g")}, []placement.Capacity{capacity("g", 3, 3)}, map[string]string{}},
		{"a group without Ready nodes last", []placement.Unit{unit("a", 9, all, "h"), unit("b", 1, all, "")}, []placement.Capacity{capacity("g", 3, 0), capacity("h", 1, 1)},
			map[string]string{"a": "h", "b": "h"}},
		{"none has Ready nodes: by nodes", []placement.Unit{unit("a", 1, all, ""), unit("b", 1, all, ""), unit("c", 1, all, "")}, []placement.Capacity{capacity("g", 1, 0), capacity("h", 2, 0)},
			map[string]string{"a": "h", "b": "g", "c": "h"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := placement.Serve(c.units, c.groups); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func unit(key string, addresses int, groups []string, group string) placement.Unit {
	return placement.Unit{Key: key, Addresses: addresses, Groups: groups, Group: group}
}

func capacity(group string, nodes, ready int) placement.Capacity {
	return placement.Capacity{Group: group, Nodes: nodes, Ready: ready}
}
