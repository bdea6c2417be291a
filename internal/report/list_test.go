// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"testing"

	"fairlead.io/fairlead/internal/source"
)

// Namespaces with few entries have all of them in a list, whatever the others have and in which order.
func TestListIsShared(t *testing.T) {
	const few = 7
	for name, test := range map[string]struct {
		added map[string]int // by namespace
		want  map[string]int
	}{
		"all fit":                    {map[string]int{"a": 60, "b": 40}, map[string]int{"a": 60, "b": 40}},
		"one has more than all":      {map[string]int{"a": 5000}, map[string]int{"a": MaxListed}},
		"one crowds another":         {map[string]int{"a": 5000, "b": few}, map[string]int{"a": MaxListed - few, "b": few}},
		"two share the others' rest": {map[string]int{"a": 500, "b": 500, "c": 2}, map[string]int{"a": 49, "b": 49, "c": 2}},
	} {
		for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				var l List[string]
				for _, namespace := range order {
					for n := range test.added[namespace] {
						l.Add(namespace, fmt.Sprintf("%s/%d", namespace, n))
					}
				}
				got := map[string]int{}
				for _, entry := range l.Entries() {
					namespace := source.NamespaceOf(entry)
					if want := fmt.Sprintf("%s/%d", namespace, got[namespace]); entry != want {
						t.Fatalf("entry %s, want %s", entry, want)
					}
					got[namespace]++
				}
				if !maps.Equal(got, test.want) {
					t.Errorf("entries %v, want %v", got, test.want)
				}
				for namespace, added := range test.added {
					if l.places.whole(namespace) && got[namespace] != added {
						t.Errorf("%s has %d of %d entries and counts as whole", namespace, got[namespace], added)
					}
				}
			})
		}
	}
}

// Of more namespaces than places each listed one has one, and none counts as whole.
func TestListOfManyNamespaces(t *testing.T) {
	var l List[int]
	for n := range 3 * MaxListed {
		l.Add(fmt.Sprint(n%150), n)
	}
	if len(l.Entries()) != MaxListed || l.places.most != 1 || l.places.whole("none") || l.places.whole("0") {
		t.Errorf("%d entries, at most %d of one namespace", len(l.Entries()), l.places.most)
	}
}
