// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/spec"
)

// Routes are the peers and policies of this node.
type Routes struct {
	// Peers are sorted by name, and have distinct addresses.
	Peers []Peer `json:"peers"`
	// Policies are ordered: the first match counts.
	Policies []bgp.Policy `json:"policies"`
}

// Peer is a BGPPeer of this node.
type Peer struct {
	Name string `json:"name"`
	bgp.Peer
	// Key is the password of RFC 2385, nil for none. It is never shown.
	Key []byte `json:"-"`
}

// translateRoutes translates all peers and pools: there are few, and they rarely change.
func (w *Cache) translateRoutes() *Routes {
	maps.DeleteFunc(w.problems, func(id Object, _ []string) bool {
		return id.Kind == KindPeer || id.Kind == KindPool || id.Kind == KindNode
	})
	r := &Routes{}
	if w.ASN == 0 {
		return r
	}
	for _, peer := range sortedObjects[*v1alpha1.BGPPeer](w) {
		w.addPeer(r, peer)
	}
	pools := sortedObjects[*v1alpha1.AddressPool](w)
	slices.SortStableFunc(pools, func(a, b *v1alpha1.AddressPool) int { return cmp.Compare(b.Spec.Priority, a.Spec.Priority) })
	for _, pool := range pools {
		policies, problems := poolPolicies(pool, w.allocated.served)
		r.Policies = append(r.Policies, policies...)
		if problems != nil {
			w.problems[Object{Kind: KindPool, Name: pool.Name}] = problems
		}
	}
	self := w.self()
	r.Policies = append(r.Policies, taggedPolicies(self.hops, w.groups)...)
	if self.badHops != "" {
		w.problems[Object{Kind: KindNode, Name: w.Node}] = []string{self.badHops}
	}
	return r
}

// taggedPolicies returns the policies of addresses in VLANs, one for each VLAN in which this node
// has a next hop. They cover the prefixes of all groups, as a route stays while the node leaves a
// group.
func taggedPolicies(hops []nextHop, groups map[string]*group) (policies []bgp.Policy) {
	for _, hop := range hops {
		p := bgp.Policy{VLAN: hop.vlan}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			for _, prefix := range groups[name].policy.Announced(hop.vlan) {
				if prefix.Addr().Is4() == hop.address.Is4() && !slices.Contains(p.Prefixes, prefix) {
					p.Prefixes = append(p.Prefixes, prefix)
				}
			}
		}
		if p.NextHop6 = hop.address; hop.address.Is4() {
			p.NextHop4, p.NextHop6 = hop.address, netip.Addr{}
		}
		if p.Prefixes != nil {
			policies = append(policies, p)
		}
	}
	return policies
}

// addPeer adds a BGPPeer of this node if it is valid. One whose password is missing is
// omitted: its session could not be established.
func (w *Cache) addPeer(r *Routes, p *v1alpha1.BGPPeer) {
	fail := func(err error) {
		id := Object{Kind: KindPeer, Name: p.Name}
		w.problems[id] = append(w.problems[id], err.Error())
	}
	chosen, err := w.selectsSelf(p.Spec.NodeSelector)
	if err != nil {
		fail(fmt.Errorf("spec.nodeSelector: %w", err))
	}
	if !chosen {
		return
	}
	peer, wrong := spec.Peer(&p.Spec.PeerOptions)
	if len(wrong) > 0 {
		fail(fmt.Errorf("spec.%w", wrong[0]))
		return
	}
	if peer.ASN == w.ASN {
		peer.Multihop = 0 // an iBGP router may be any number of hops away
	}
	own := Peer{Name: p.Name, Peer: peer}
	if own.Key, err = w.password(p.Spec.PasswordSecretRef); err != nil {
		fail(err)
		return
	}
	if at := slices.IndexFunc(r.Peers, func(o Peer) bool { return o.Address == own.Address }); at >= 0 {
		fail(fmt.Errorf("spec.address: %s is also the address of BGPPeer %s, which is used", own.Address, r.Peers[at].Name))
		return
	}
	r.Peers = append(r.Peers, own)
}

// selectsSelf reports whether a selector matches this node.
func (w *Cache) selectsSelf(selector *metav1.LabelSelector) (bool, error) {
	self := w.nodes[w.Node]
	if selector == nil || self == nil {
		return self != nil, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(self.labels)), err
}

// password returns the password in a Secret; nil without a reference.
func (w *Cache) password(ref *v1alpha1.SecretKeySelector) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	key := cmp.Or(ref.Key, "password")
	secret, _ := w.objects[Object{Kind: KindSecret, Name: ref.Name}].(*corev1.Secret)
	if secret == nil {
		return nil, fmt.Errorf("spec.passwordSecretRef: no Secret %s in the agents' namespace: the peer is not configured", ref.Name)
	}
	password := bytes.TrimRight(secret.Data[key], "\r\n") // of files
	if err := bgp.CheckPassword(password); err != nil {
		return nil, fmt.Errorf("spec.passwordSecretRef: Secret %s: key %s: %w: the peer is not configured", ref.Name, key, err)
	}
	return password, nil
}
