// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/equality"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// decision is the decision about an object at the start, without the object: all of them together may
// be larger than the memory.
type decision struct {
	key     []byte
	created time.Time
	address netip.Addr
	failure error
}

// decideAll adopts the addresses of all objects, and updates the statuses that the policy changes.
func (s *embeddedStore) decideAll() error {
	var all []decision
	err := s.file.View(func(tx *bolt.Tx) error {
		objects := tx.Bucket(objectsBucket)
		if _, err := s.readNodes(tx); err != nil {
			return err
		}
		if err := objects.ForEach(func(key, text []byte) error {
			b, err := decodeStored(key, text)
			if err == nil {
				s.addresses.adopt(b)
				all = append(all, decision{key: bytes.Clone(key), created: b.CreationTimestamp.Time})
			}
			return err
		}); err != nil {
			return err
		}
		if err := tx.Bucket(retainedBucket).ForEach(s.addresses.restore); err != nil {
			return err
		}
		slices.SortStableFunc(all, func(a, b decision) int { return a.created.Compare(b.created) })
		for i := range all {
			d := &all[i]
			b, err := decodeStored(d.key, objects.Get(d.key))
			if err != nil {
				return err
			}
			d.address, d.failure = s.addresses.claim(b, true)
			setAddress(b, d.address)
			s.quota.set(b.Namespace, s.quota.claim(b))
		}
		return nil
	})
	if err != nil {
		return err
	}
	refused := map[string]map[string]spec.Refusal{}
	for project := range s.quota.claims {
		refused[project] = s.quota.refused(project, nil)
	}
	for len(all) > 0 {
		if err := s.file.Update(func(tx *bolt.Tx) error {
			for written := 0; len(all) > 0 && written < maxPage; all = all[1:] {
				n, err := s.writeDecision(tx, &all[0], refused)
				if err != nil {
					return err
				}
				written += n
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeDecision writes the status of an object, if it differs, and returns the object's size in bytes if
// it does.
func (s *embeddedStore) writeDecision(tx *bolt.Tx, d *decision, refused map[string]map[string]spec.Refusal) (n int, err error) {
	text := tx.Bucket(objectsBucket).Get(d.key)
	b, err := decodeStored(d.key, text)
	if err != nil {
		return 0, err
	}
	before := *b.Status.DeepCopy()
	setAddress(b, d.address)
	s.policy.decide(b, d.address, d.failure, s.quota.claims[b.Namespace][b.Name].Raised, refused[b.Namespace][b.Name])
	if equality.Semantic.DeepEqual(before, b.Status) {
		return 0, nil
	}
	object, err := decode(text)
	if err == nil {
		_, err = putObject(tx, object, b)
	}
	return len(text), err
}

// decodeStored decodes a stored object.
func decodeStored(key, text []byte) (*v1alpha1.LoadBalancer, error) {
	b := &v1alpha1.LoadBalancer{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return b, nil
}

// bytesOf returns how many bytes the objects of a project have.
func bytesOf(tx *bolt.Tx, project string) (n int) {
	prefix, c := keyOf(project, ""), tx.Bucket(objectsBucket).Cursor()
	for key, text := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, text = c.Next() {
		n += len(text)
	}
	return n
}

// writtenBytes returns how many bytes of an object its client has written; 0 for none.
func writtenBytes(text []byte) int {
	var object struct {
		Metadata struct{ Labels json.RawMessage }
		Spec     json.RawMessage
	}
	_ = json.Unmarshal(text, &object) // it is valid: the store has written it
	return len(object.Metadata.Labels) + len(object.Spec)
}
