// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
)

// Routes are to whom this node announces its VIPs, and how.
type Routes struct {
	// Peers are sorted by name, and have distinct addresses.
	Peers []Peer `json:"peers"`
	// Policies are in the order in which they count.
	Policies []bgp.Policy `json:"policies"`
}

// Peer is a BGPPeer of this node.
type Peer struct {
	Name string `json:"name"`
	bgp.Peer
	// Key is the password of RFC 2385, nil for none. It is never shown: whoever
	// configures a speaker puts it into a file first.
	Key []byte `json:"-"`
}

func (r *Routes) equal(o *Routes) bool { return reflect.DeepEqual(r, o) }

// translateRoutes makes all of them anew: there are few, and they change seldom.
func (w *World) translateRoutes() *Routes {
	maps.DeleteFunc(w.problems, func(id Object, _ []string) bool { return id.Kind == KindPeer || id.Kind == KindPool })
	r := &Routes{}
	if w.asn == 0 {
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(w.peers)) {
		w.addPeer(r, w.peers[name])
	}
	byPriority := slices.SortedFunc(maps.Values(w.pools), func(a, b *v1alpha1.AddressPool) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, pool := range byPriority {
		policies, problems := poolPolicies(pool)
		r.Policies = append(r.Policies, policies...)
		if problems != nil {
			w.problems[Object{Kind: KindPool, Name: pool.Name}] = problems
		}
	}
	return r
}
