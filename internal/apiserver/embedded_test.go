// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// anyPolicy allows the tests of all stores what they need.
const anyPolicy = `
addressPools:
- {name: public, addresses: [203.0.113.0/24]}
loadBalancers:
  memberNetworks: [192.0.2.0/24, "2001:db8::/32", 10.0.0.0/8]
`

// newEmbedded returns an embedded store in a new file.
func newEmbedded(t testing.TB) *embeddedStore {
	t.Helper()
	return openEmbedded(t, filepath.Join(t.TempDir(), "data"), anyPolicy)
}

// openEmbedded opens a file until the test ends.
func openEmbedded(t testing.TB, path, policy string) *embeddedStore {
	t.Helper()
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePolicy([]byte(policy), kinds)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openEmbeddedStore(path, p, kinds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// count returns how many LoadBalancers there are.
func (s *embeddedStore) count() (n int) {
	_ = s.file.View(func(tx *bolt.Tx) error {
		n = tx.Bucket(objectsBucket).Stats().KeyN
		return nil
	})
	return n
}

// The store validates as a Kubernetes API server does.
func TestEmbedded(t *testing.T) {
	newAPIOf(t, newEmbedded(t), 2).testValidating(t)
}
