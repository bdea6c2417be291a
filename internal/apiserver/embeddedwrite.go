// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// complete validates an object, and sets its defaults.
func (s *embeddedStore) complete(ctx context.Context, project string, object *unstructured.Unstructured) error {
	object.SetNamespace(project)
	if unknown := s.balancers.Complete(object); len(unknown) > 0 {
		return apierrors.NewBadRequest(`unknown field "` + strings.Join(unknown, `", unknown field "`) + `"`)
	}
	found := s.balancers.Validate(ctx, object)
	if err := ctx.Err(); err != nil {
		return err // which may have interrupted a rule: found isn't the client's fault
	}
	if len(found) > 0 {
		return apierrors.NewInvalid(v1alpha1.GroupVersion().WithKind("LoadBalancer").GroupKind(), object.GetName(), found)
	}
	return nil
}

// Create refuses an object that gets no address.
func (s *embeddedStore) Create(ctx context.Context, project string, object *unstructured.Unstructured) error {
	delete(object.Object, "status")
	if err := s.complete(ctx, project, object); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, err := s.text(project, object.GetName())
	switch {
	case err != nil:
		return err
	case current != nil:
		return apierrors.NewAlreadyExists(balancers, object.GetName())
	}
	object.SetUID(uuid.NewUUID())
	object.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	object.SetGeneration(1)
	return s.write(object, false)
}

// Update refuses a change of the address that can't be made.
func (s *embeddedStore) Update(ctx context.Context, project string, object *unstructured.Unstructured) error {
	if err := s.complete(ctx, project, object); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, before, err := s.current(project, object)
	if err != nil {
		return err
	}
	after, err := json.Marshal(object.Object["spec"])
	if err != nil {
		return err
	}
	object.SetUID(current.GetUID())
	object.SetCreationTimestamp(current.GetCreationTimestamp())
	object.SetGeneration(current.GetGeneration())
	sameSpec := bytes.Equal(after, before.Spec)
	if sameSpec && equality.Semantic.DeepEqual(object.Object["metadata"], current.Object["metadata"]) {
		return nil
	}
	if !sameSpec {
		object.SetGeneration(current.GetGeneration() + 1)
	}
	var status map[string]any
	if err := utiljson.Unmarshal(before.Status, &status); err != nil {
		return err
	}
	object.Object["status"] = status
	keeps, err := keepsAddress(before.Spec, after)
	if err != nil {
		return err
	}
	return s.write(object, keeps)
}

// current returns the metadata and the parts of the stored object of which another version is to be made.
func (s *embeddedStore) current(project string, object *unstructured.Unstructured) (
	*unstructured.Unstructured, *storedParts, error,
) {
	text, err := s.Get(context.Background(), project, object.GetName())
	if err != nil {
		return nil, nil, err
	}
	current, parts, err := decodeHead(text)
	if err == nil && current.GetResourceVersion() != object.GetResourceVersion() {
		err = apierrors.NewConflict(balancers, object.GetName(), errors.New("it has another version"))
	}
	return current, parts, err
}

// write decides about an object, which keeps the address in its status or gets another one, and
// stores it.
func (s *embeddedStore) write(object *unstructured.Unstructured, keeps bool) (err error) {
	b, err := typedOf(object)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.restore(b.Namespace, b.Name)
		}
	}()
	stored, err := s.text(b.Namespace, b.Name)
	if err == nil {
		err = s.policy.checkNodes(b, stored)
	}
	if err != nil {
		return err
	}
	owner := spec.LoadBalancerOwner(b.Namespace, b.Name)
	released := s.addresses.pooled(owner)
	address, failure := s.addresses.claim(b, keeps)
	if s.addresses.pooled(owner) == released {
		released = netip.Addr{}
	}
	if failure != nil && !keeps {
		return apierrors.NewInvalid(v1alpha1.GroupVersion().WithKind("LoadBalancer").GroupKind(), b.Name, field.ErrorList{
			field.Forbidden(field.NewPath("spec", "address"), failure.Error()),
		})
	}
	setAddress(b, address)
	claim := s.quota.claim(b)
	if why, path := s.policy.bounds.AllowsIPVS(&claim); path != "" {
		return apierrors.NewInvalid(v1alpha1.GroupVersion().WithKind("LoadBalancer").GroupKind(), b.Name, field.ErrorList{
			field.Forbidden(field.NewPath("spec", path), why.Message),
		})
	}
	if why := s.quota.exceeded(b.Namespace, claim); why != "" {
		return apierrors.NewForbidden(balancers, b.Name, errors.New(why))
	}
	before := s.quota.refused(b.Namespace, nil)
	s.quota.set(b.Namespace, claim)
	now := s.quota.refused(b.Namespace, nil)
	s.policy.decide(b, address, failure, claim.Raised, now[b.Name])
	return s.commit(b.Namespace, b.Name, released, before, now, func(tx *bolt.Tx) (int64, error) {
		revision, err := putObject(tx, object, b)
		if err != nil {
			return 0, err
		}
		text := tx.Bucket(objectsBucket).Get(keyOf(b.Namespace, b.Name))
		if len(text) > max(maxObject, len(stored)) {
			return 0, apierrors.NewRequestEntityTooLargeError("the object is too large")
		}
		if why := s.quota.exceededBytes(bytesOf(tx, b.Namespace)); why != "" && writtenBytes(text) > writtenBytes(stored) {
			return 0, apierrors.NewForbidden(balancers, b.Name, errors.New(why))
		}
		return revision, nil
	})
}

// commit writes an object, and the changes that follow for the other load balancers of its project,
// of which the quota refused some before, and refuses some now. If an address is valid, it is released.
func (s *embeddedStore) commit(
	project, name string, released netip.Addr, before, now map[string]spec.Refusal, write func(*bolt.Tx) (revision int64, err error),
) error {
	r := retention{project, time.Now()}
	if err := s.followers.update(func(tx *bolt.Tx) ([]change, error) {
		revision, err := write(tx)
		if err == nil && released.IsValid() {
			err = s.addresses.store(tx.Bucket(retainedBucket), released, r)
		}
		if err != nil {
			return nil, err
		}
		others, err := s.decideAgain(tx, project, name, before, now)
		return append([]change{{key: string(keyOf(project, name)), revision: revision}}, others...), err
	}); err != nil {
		return err
	}
	if released.IsValid() {
		s.addresses.retain(released, r)
	}
	return nil
}

// decideAgain decides about the load balancers that the quota treats otherwise than before, apart
// from the written one. Objects without an address are skipped.
func (s *embeddedStore) decideAgain(tx *bolt.Tx, project, written string, before, now map[string]spec.Refusal) (changes []change, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.quota.claims[project])) {
		if now[name] == before[name] || name == written {
			continue
		}
		changed, err := s.decideStored(tx, keyOf(project, name), now[name])
		if err != nil {
			return nil, err
		}
		changes = append(changes, changed...)
	}
	return changes, nil
}

// decideStored decides about the parts of a stored object, unless it has no address that it may have.
func (s *embeddedStore) decideStored(tx *bolt.Tx, key []byte, refused spec.Refusal) ([]change, error) {
	object, err := decode(tx.Bucket(objectsBucket).Get(key))
	if err != nil {
		return nil, err
	}
	b, err := typedOf(object)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddr(b.Status.Address)
	if err != nil || !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionAllocated) {
		return nil, nil //nolint:nilerr // it has none
	}
	s.policy.decide(b, address, nil, s.quota.claims[b.Namespace][b.Name].Raised, refused)
	revision, err := putObject(tx, object, b)
	return []change{{key: string(key), revision: revision}}, err
}

// restore resets an object's address and quota usage to the file's state after a failed write.
func (s *embeddedStore) restore(project, name string) {
	text, err := s.text(project, name)
	if err != nil {
		return // other writes fail, too
	}
	if text == nil {
		s.addresses.release(spec.LoadBalancerOwner(project, name))
		s.quota.remove(project, name)
	} else if b, err := decodeStored(keyOf(project, name), text); err == nil {
		s.addresses.adopt(b)
		s.quota.set(project, s.quota.claim(b))
	}
}

// keepsAddress reports whether two specifications request the same address.
func keepsAddress(before, after []byte) (bool, error) {
	type request struct{ Address, AddressPool, IPFamily, Segment any }
	var a, b request
	err := errors.Join(json.Unmarshal(before, &a), json.Unmarshal(after, &b))
	return equality.Semantic.DeepEqual(a, b), err
}

// putObject stores an object with a status under the next revision.
func putObject(tx *bolt.Tx, object *unstructured.Unstructured, b *v1alpha1.LoadBalancer) (revision int64, err error) {
	if object.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&b.Status); err != nil {
		return 0, err
	}
	if revision, err = nextRevision(tx); err != nil {
		return 0, err
	}
	object.SetResourceVersion(strconv.FormatInt(revision, 10))
	text, err := object.MarshalJSON()
	if err != nil {
		return 0, err
	}
	return revision, tx.Bucket(objectsBucket).Put(keyOf(b.Namespace, b.Name), text)
}

// nextRevision counts a write.
func nextRevision(tx *bolt.Tx) (int64, error) {
	revision := revisionOf(tx) + 1
	return revision, tx.Bucket(metaBucket).Put(revisionKey, binary.BigEndian.AppendUint64(nil, uint64(revision)))
}

func revisionOf(tx *bolt.Tx) int64 {
	if value := tx.Bucket(metaBucket).Get(revisionKey); value != nil {
		return int64(binary.BigEndian.Uint64(value))
	}
	return 0
}

// Delete frees the address, for others once it isn't retained any more.
func (s *embeddedStore) Delete(_ context.Context, project string, object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.current(project, object); err != nil {
		return err
	}
	name := object.GetName()
	owner := spec.LoadBalancerOwner(project, name)
	released := s.addresses.pooled(owner)
	s.addresses.release(owner)
	before := s.quota.refused(project, nil)
	s.quota.remove(project, name)
	if err := s.commit(project, name, released, before, s.quota.refused(project, nil), func(tx *bolt.Tx) (int64, error) {
		revision, err := nextRevision(tx)
		if err != nil {
			return 0, err
		}
		return revision, tx.Bucket(objectsBucket).Delete(keyOf(project, name))
	}); err != nil {
		s.restore(project, name)
		return err
	}
	return nil
}
