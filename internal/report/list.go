// SPDX-License-Identifier: Apache-2.0

// Package report bounds and reads the reports of nodes (v1alpha1.BalancerNodeStatus). Agents build the lists of a
// report with it; the controller and the API server use it to sum up the reports of several nodes about an object.
package report

import (
	"maps"
	"slices"
)

// MaxListed bounds each list of a report.
const MaxListed = 100

// List builds a list of a report. Namespaces share its MaxListed places: an entry too many takes the place of the
// last entry of a namespace that has at least two more, or is omitted. The zero List is empty.
type List[T any] struct {
	entries    []T
	namespaces []string // of the entries
	places     places
}

// Add adds an entry of a namespace.
func (l *List[T]) Add(namespace string, entry T) {
	if len(l.entries) == MaxListed {
		if l.places.count[namespace]+1 >= l.places.most {
			return
		}
		at := len(l.entries) - 1
		for l.places.count[l.namespaces[at]] < l.places.most {
			at--
		}
		l.places.remove(l.namespaces[at])
		l.entries, l.namespaces = slices.Delete(l.entries, at, at+1), slices.Delete(l.namespaces, at, at+1)
	}
	l.places.add(namespace)
	l.entries, l.namespaces = append(l.entries, entry), append(l.namespaces, namespace)
}

// Entries returns the entries in the order of their addition.
func (l *List[T]) Entries() []T { return l.entries }

// places are the places that each namespace has in a list; most is the largest number of them.
type places struct {
	count map[string]int
	most  int
}

func (p *places) add(namespace string) {
	if p.count == nil {
		p.count = map[string]int{}
	}
	p.count[namespace]++
	p.most = max(p.most, p.count[namespace])
}

func (p *places) remove(namespace string) {
	p.count[namespace]--
	p.most = slices.Max(slices.Collect(maps.Values(p.count)))
}

// whole reports whether a List that omits entries has all of a namespace: else it would have as many places as any
// other, or one less.
func (p *places) whole(namespace string) bool { return p.count[namespace]+1 < p.most }
