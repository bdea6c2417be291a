// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"maps"
	"testing"

	"fairlead.io/fairlead/internal/alloc"
)

func TestServe(t *testing.T) {
	all := []string{"g", "h", "i"}
	for _, c := range []struct {
		name   string
		units  []alloc.Unit
		groups []alloc.Capacity
		want   map[string]string
	}{
		{"one after the other", []alloc.Unit{unit("a", 1, all, ""), unit("b", 1, all, ""), unit("c", 1, all, "")}, []alloc.Capacity{capacity("g", 3, 3), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "h", "c": "g"}},
		{"most addresses first", []alloc.Unit{unit("a", 1, all, ""), unit("b", 1, all, ""), unit("c", 2, all, "")}, []alloc.Capacity{capacity("g", 3, 3), capacity("h", 3, 3)},
			map[string]string{"a": "h", "b": "h", "c": "g"}},
		{"fewest addresses for each Ready node", []alloc.Unit{unit("a", 2, all, "g"), unit("b", 2, all, "h"), unit("c", 1, all, "")}, []alloc.Capacity{capacity("g", 3, 2), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "h", "c": "h"}},
		{"never for balance's sake", []alloc.Unit{unit("a", 1, all, "g"), unit("b", 1, all, "g"), unit("c", 1, all, "g")}, []alloc.Capacity{capacity("g", 1, 1), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "g", "c": "g"}},
		{"a new group fills with new units", []alloc.Unit{unit("a", 5, all, "g"), unit("b", 1, all, ""), unit("c", 1, all, "")}, []alloc.Capacity{capacity("g", 3, 3), capacity("h", 3, 3)},
			map[string]string{"a": "g", "b": "h", "c": "h"}},
		{"its group is gone", []alloc.Unit{unit("a", 1, all, "x")}, []alloc.Capacity{capacity("g", 3, 3)}, map[string]string{"a": "g"}},
		{"its group doesn't match any more", []alloc.Unit{unit("a", 1, []string{"h"}, "g")}, []alloc.Capacity{capacity("g", 3, 3), capacity("h", 1, 0)}, map[string]string{"a": "h"}},
		{"its group has no nodes", []alloc.Unit{unit("a", 1, all, "g")}, []alloc.Capacity{capacity("g", 0, 0), capacity("h", 1, 0)}, map[string]string{"a": "h"}},
		{"nodes that aren't Ready keep it", []alloc.Unit{unit("a", 1, all, "g")}, []alloc.Capacity{capacity("g", 3, 0), capacity("h", 3, 3)}, map[string]string{"a": "g"}},
		{"no group has nodes: it waits where it is", []alloc.Unit{unit("a", 1, all, "g"), unit("b", 1, all, "")}, []alloc.Capacity{capacity("g", 0, 0), capacity("h", 0, 0)},
			map[string]string{"a": "g"}},
		{"nothing matches", []alloc.Unit{unit("a", 1, nil, "g")}, []alloc.Capacity{capacity("g", 3, 3)}, map[string]string{}},
		{"a group without Ready nodes last", []alloc.Unit{unit("a", 9, all, "h"), unit("b", 1, all, "")}, []alloc.Capacity{capacity("g", 3, 0), capacity("h", 1, 1)},
			map[string]string{"a": "h", "b": "h"}},
		{"none has Ready nodes: by nodes", []alloc.Unit{unit("a", 1, all, ""), unit("b", 1, all, ""), unit("c", 1, all, "")}, []alloc.Capacity{capacity("g", 1, 0), capacity("h", 2, 0)},
			map[string]string{"a": "h", "b": "g", "c": "h"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := alloc.PlaceUnits(c.units, c.groups); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func unit(key string, addresses int, groups []string, group string) alloc.Unit {
	return alloc.Unit{Key: key, Addresses: addresses, Groups: groups, Group: group}
}

func capacity(group string, nodes, ready int) alloc.Capacity {
	return alloc.Capacity{Group: group, Nodes: nodes, Ready: ready}
}
