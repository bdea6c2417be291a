// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/test/fuzzrand"
)

// all returns the stored objects.
func (s *embeddedStore) all(t *testing.T) (all []*v1alpha1.LoadBalancer) {
	t.Helper()
	err := s.file.View(func(tx *bolt.Tx) error {
		return tx.Bucket(objectsBucket).ForEach(func(_, text []byte) error {
			b := &v1alpha1.LoadBalancer{}
			all = append(all, b)
			return json.Unmarshal(text, b)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// agree checks that each address has one owner, each object its status, and that nodes get the
// objects that spec.Admit admits.
func (s *embeddedStore) agree(t *testing.T) {
	t.Helper()
	owners, claims, objects := map[string]string{}, map[string][]spec.Claim{}, map[string][]*v1alpha1.LoadBalancer{}
	for _, b := range s.all(t) {
		name := b.Namespace + "/" + b.Name
		if other := owners[b.Status.Address]; b.Status.Address != "" && other != "" {
			t.Errorf("%s and %s have %s", other, name, b.Status.Address)
		}
		owners[b.Status.Address] = name
		claims[b.Namespace] = append(claims[b.Namespace], s.quota.claim(b))
		objects[b.Namespace] = append(objects[b.Namespace], b)
	}
	for project := range claims {
		for i, why := range spec.Admit(map[string]spec.Bounds{defaultGroup: s.policy.bounds}, claims[project]) {
			b := objects[project][i]
			allocated := meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionAllocated)
			ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
			admitted := allocated && why == spec.Refusal{}
			if ready == nil || ready.ObservedGeneration != b.Generation || (spec.ServedBy(b) != "") != admitted || (ready.Status == "True") != admitted {
				t.Errorf("%s/%s is admitted: %t (%v), and has the status %+v", project, b.Name, admitted, why, b.Status)
			}
			services, _ := spec.LoadBalancer(s.policy.served(b), netip.MustParseAddr(b.Status.Address))
			if want := len(b.Spec.Listeners); admitted && len(services) != want || !admitted && len(services) > 0 {
				t.Errorf("%s/%s is admitted: %t, and nodes serve %d of %d listeners", project, b.Name, admitted, len(services), want)
			}
		}
	}
}

// After random histories of three projects, under policies that change, the store agrees with the
// decision, and deciding again changes nothing.
func TestHistoriesAgree(t *testing.T) {
	const steps = 300
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	path := filepath.Join(t.TempDir(), "data")
	policy := func() string {
		return fmt.Sprintf("addressPools: [{name: p, addresses: [203.0.113.0/28]}]\nservices: {maxPorts: %d, perNamespace: {services: %d}}\n", 2+random.IntN(3), 3+random.IntN(6))
	}
	current := policy()
	s := openEmbedded(t, path, current)
	for step := range steps {
		project, name := fmt.Sprintf("p%d", random.IntN(3)), fmt.Sprintf("lb%d", random.IntN(6))
		object, err := s.find(project, name)
		if err != nil {
			t.Fatal(err)
		}
		switch n := random.IntN(20); {
		case n == 0:
			if random.IntN(2) == 0 {
				current = policy()
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openEmbedded(t, path, current)
			before := stored(t, s, "p0")
			if err := s.decideAll(); err != nil || fmt.Sprint(stored(t, s, "p0")) != fmt.Sprint(before) {
				t.Errorf("deciding again: %v, error %v, before %v", stored(t, s, "p0"), err, before)
			}
		case n < 4 && object != nil:
			err = s.Delete(t.Context(), project, object)
		default:
			created := object == nil
			if created {
				object = newObject(name)
			}
			var listeners []any
			for i := range random.IntN(4) {
				listeners = append(listeners, map[string]any{"name": fmt.Sprint("l", i), "port": int64(i + 1)})
			}
			object.Object["spec"] = map[string]any{"forward": "nat", "listeners": listeners}
			if listeners == nil {
				delete(specOf(object), "listeners")
			}
			if random.IntN(3) == 0 {
				specOf(object)["address"] = fmt.Sprintf("203.0.113.%d", random.IntN(16))
			}
			if created {
				err = s.Create(t.Context(), project, object)
			} else {
				err = s.Update(t.Context(), project, object)
			}
		}
		if err != nil && !strings.Contains(err.Error(), "are more than") && httpErrorOf(err).Status != 422 {
			t.Fatalf("step %d: %v", step, err)
		}
		if s.agree(t); t.Failed() {
			t.Fatalf("after step %d with %s", step, current)
		}
	}
	fuzzrand.Covered(t, 1, steps)
}
