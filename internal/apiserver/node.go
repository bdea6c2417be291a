// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.io/fairlead/api/v1alpha1"
)

// nodeAddresses are the last reported addresses of a node and of its BGP peers. They are in the file, so that a restarted server
// decides as before.
type nodeAddresses struct {
	Addresses []v1alpha1.IPAddress
	Reported  time.Time
}

const (
	// nodeLifetime is how long addresses of a node count without a report.
	nodeLifetime = 24 * time.Hour
	// nodeRefresh is the shortest time between two writes of the same addresses.
	nodeRefresh = time.Hour
)

// readNodes has decisions follow the addresses of nodes in the file, and returns these addresses.
func (s *embeddedStore) readNodes(tx *bolt.Tx) (all []netip.Addr, err error) {
	s.nodes = map[string]nodeAddresses{}
	err = tx.Bucket(nodesBucket).ForEach(func(key, text []byte) error {
		var n nodeAddresses
		if err := json.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("node %s: %w", key, err)
		}
		s.nodes[string(key)] = n
		for _, text := range n.Addresses {
			if a, err := netip.ParseAddr(string(text)); err == nil {
				all = append(all, a)
			}
		}
		return nil
	})
	s.policy.networks.Node(s.addresses.hosts, nil, false)
	s.policy.networks.Node(all, nil, true)
	s.addresses.setHosts(all)
	return all, err
}

// setNode replaces the addresses of a node, and decides about load balancers with members at addresses that
// nodes have got or lost.
func (s *embeddedStore) setNode(node string, addresses []v1alpha1.IPAddress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := time.Now(), s.nodes[node]
	if slices.Equal(known.Addresses, addresses) && (len(addresses) == 0 || now.Sub(known.Reported) < nodeRefresh) {
		return nil
	}
	text, err := json.Marshal(nodeAddresses{addresses, now})
	if err != nil {
		return err
	}
	former := s.addresses.hosts
	err = s.followers.update(func(tx *bolt.Tx) ([]change, error) {
		bucket := tx.Bucket(nodesBucket)
		for other, n := range s.nodes {
			if now.Sub(n.Reported) >= nodeLifetime {
				if err := bucket.Delete([]byte(other)); err != nil {
					return nil, err
				}
			}
		}
		if err := bucket.Put([]byte(node), text); err != nil {
			return nil, err
		}
		all, err := s.readNodes(tx)
		if err != nil {
			return nil, err
		}
		changed := slices.DeleteFunc(slices.Concat(former, all), func(a netip.Addr) bool { return slices.Contains(former, a) && slices.Contains(all, a) })
		return s.decideMembers(tx, changed)
	})
	if err != nil {
		_ = s.file.View(func(tx *bolt.Tx) error { _, err := s.readNodes(tx); return err }) // as before
	}
	return err
}

// decideMembers decides about the load balancers that name one of some addresses.
func (s *embeddedStore) decideMembers(tx *bolt.Tx, at []netip.Addr) (changes []change, err error) {
	var concerned [][]byte
	_ = tx.Bucket(objectsBucket).ForEach(func(key, text []byte) error {
		if slices.ContainsFunc(at, func(a netip.Addr) bool { return mentions(text, a) }) {
			concerned = append(concerned, bytes.Clone(key))
		}
		return nil
	})
	for _, key := range concerned {
		project, name, _ := strings.Cut(string(key), "/")
		changed, err := s.decideStored(tx, key, s.quota.refused(project, nil)[name])
		if err != nil {
			return nil, err
		}
		changes = append(changes, changed...)
	}
	return changes, nil
}

// mentions reports whether the text of an object has an address.
func mentions(text []byte, a netip.Addr) bool {
	return bytes.Contains(text, []byte(`"`+a.String()+`"`))
}

// checkNodes refuses members at addresses of nodes, unless the policy allows them or the stored object has
// them: a node may have got the address since.
func (p *policy) checkNodes(b *v1alpha1.LoadBalancer, stored []byte) error {
	var found field.ErrorList
	for i := range b.Spec.Pools {
		for j, m := range b.Spec.Pools[i].Members {
			path := field.NewPath("spec", "pools").Index(i).Child("members").Index(j)
			for _, at := range []struct {
				field   string
				address v1alpha1.IPAddress
			}{{"address", m.Address}, {"monitorAddress", m.MonitorAddress}} {
				a, _ := netip.ParseAddr(string(at.address))
				if why := p.members.CheckNode(a, p.networks); why != nil && !mentions(stored, a) {
					found = append(found, field.Forbidden(path.Child(at.field), why.Error()))
				}
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion().WithKind("LoadBalancer").GroupKind(), b.Name, found)
}
