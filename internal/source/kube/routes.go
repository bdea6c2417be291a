// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
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

// routing translates the BGPPeers and AddressPools of a node into its Routes.
type routing struct {
	// asn is the AS number of the node's speaker; 0: there are no peers and policies.
	asn uint32
	// peers and secrets are by name; the Secrets are the agents'.
	peers   map[string]*v1alpha1.BGPPeer
	secrets map[string]*corev1.Secret
	// dirty says that an object has changed since the last flush.
	dirty bool
	// routes are the last ones, nil before; problems are of peers, pools and the node.
	routes   *Routes
	problems map[Object][]string
}

func newRouting(asn uint32) routing {
	return routing{asn: asn, peers: map[string]*v1alpha1.BGPPeer{}, secrets: map[string]*corev1.Secret{}, dirty: true}
}

// flush translates all peers and pools after a change: there are few, and they rarely change. It returns nil if the routes
// are as before. The node is nil if it is unknown, served yields the addresses of each group.
func (r *routing) flush(self *node, pools map[string]*pool, groups map[string]*group, served iter.Seq2[string, []netip.Addr]) *Routes {
	if !r.dirty {
		return nil
	}
	r.dirty, r.problems = false, map[Object][]string{}
	before := r.routes
	r.routes = &Routes{}
	if r.asn != 0 {
		r.addPeers(self)
		r.addPolicies(self, pools, groups, served)
	}
	if reflect.DeepEqual(before, r.routes) {
		return nil
	}
	return r.routes
}

// secretNames returns the names of the Secrets that the node's peers refer to.
func (r *routing) secretNames(self *node) (names []string) {
	for _, p := range r.peers {
		here, _ := self.selectedBy(p.Spec.NodeSelector)
		if ref := p.Spec.PasswordSecretRef; ref != nil && here && r.asn != 0 {
			names = append(names, ref.Name)
		}
	}
	return names
}

// addPolicies adds the policies of pools, by priority, and the policies of addresses in VLANs.
func (r *routing) addPolicies(self *node, pools map[string]*pool, groups map[string]*group, served iter.Seq2[string, []netip.Addr]) {
	sorted := slices.SortedFunc(maps.Values(pools), func(a, b *pool) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, pool := range sorted {
		policies, problems := poolPolicies(pool.AddressPool, served)
		r.routes.Policies = append(r.routes.Policies, policies...)
		if problems != nil {
			r.problems[Object{Kind: KindPool, Name: pool.Name}] = problems
		}
	}
	if self == nil {
		return
	}
	r.routes.Policies = append(r.routes.Policies, taggedPolicies(self.hops, groups)...)
	if self.badHops != "" {
		r.problems[Object{Kind: KindNode, Name: self.name}] = []string{self.badHops}
	}
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

// addPeers adds the BGPPeers of this node.
func (r *routing) addPeers(self *node) {
	for _, name := range slices.Sorted(maps.Keys(r.peers)) {
		p := &r.peers[name].Spec
		here, err := self.selectedBy(p.NodeSelector)
		if err != nil {
			err = fmt.Errorf("spec.nodeSelector: %w", err)
		} else if here {
			err = r.addPeer(name, p)
		}
		if err != nil {
			r.problems[Object{Kind: KindPeer, Name: name}] = []string{err.Error()}
		}
	}
}

// addPeer adds a BGPPeer if it is valid. One whose password is missing is
// omitted: its session could not be established.
func (r *routing) addPeer(name string, p *v1alpha1.BGPPeerSpec) error {
	peer, wrong := spec.Peer(&p.PeerOptions)
	if len(wrong) > 0 {
		return fmt.Errorf("spec.%w", wrong[0])
	}
	if peer.ASN == r.asn {
		peer.Multihop = 0 // an iBGP router may be any number of hops away
	}
	key, err := r.password(p.PasswordSecretRef)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(r.routes.Peers, func(o Peer) bool { return o.Address == peer.Address }); at >= 0 {
		return fmt.Errorf("spec.address: %s is also the address of BGPPeer %s, which is used", peer.Address, r.routes.Peers[at].Name)
	}
	r.routes.Peers = append(r.routes.Peers, Peer{name, peer, key})
	return nil
}

// selectedBy reports whether a selector matches the node; not if it is nil.
func (n *node) selectedBy(selector *metav1.LabelSelector) (bool, error) {
	if selector == nil || n == nil {
		return n != nil, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(n.labels)), err
}

// password returns the password in a Secret; nil without a reference.
func (r *routing) password(ref *v1alpha1.SecretKeySelector) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	key := cmp.Or(ref.Key, "password")
	secret := r.secrets[ref.Name]
	if secret == nil {
		return nil, fmt.Errorf("spec.passwordSecretRef: no Secret %s in the agents' namespace: the peer is not configured", ref.Name)
	}
	password := bytes.TrimRight(secret.Data[key], "\r\n") // of files
	if err := bgp.CheckPassword(password); err != nil {
		return nil, fmt.Errorf("spec.passwordSecretRef: Secret %s: key %s: %w: the peer is not configured", ref.Name, key, err)
	}
	return password, nil
}
