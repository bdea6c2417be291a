// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secrets is an API server with one Secret, or none.
type secrets struct {
	client.Client
	secret *corev1.Secret
	// before runs before a write.
	before func(*corev1.Secret)
	writes int
}

var secretResource = schema.GroupResource{Resource: "secrets"}

func (s *secrets) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if key != (client.ObjectKey{Namespace: "lb", Name: "seed"}) || s.secret == nil {
		s.secret = &corev1.Secret{} // created after the first query
		s.secret.ResourceVersion = "1"
		return apierrors.NewNotFound(secretResource, key.Name)
	}
	s.secret.DeepCopyInto(object.(*corev1.Secret))
	return nil
}

func (s *secrets) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if s.before != nil {
		s.before(s.secret)
	}
	if object.GetResourceVersion() != s.secret.ResourceVersion {
		return apierrors.NewConflict(secretResource, object.GetName(), nil)
	}
	s.writes++
	s.secret = object.(*corev1.Secret).DeepCopy()
	return nil
}

// A Secret without seed gets a random one, once.
func TestWriteSeed(t *testing.T) {
	write := func(api *secrets) string {
		d := newDeps(Options{Namespace: "lb", HashSeedSecret: "seed", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		d.Client, d.live = api, api
		if err := d.writeSeed(t.Context()); err != nil {
			t.Fatal(err)
		}
		return string(api.secret.Data["seed"])
	}
	api := &secrets{}
	first := write(api)
	if n, err := strconv.ParseUint(first, 10, 64); err != nil || n == 0 {
		t.Fatalf("seed %q: %v", first, err)
	}
	if again := write(api); again != first || api.writes != 1 {
		t.Errorf("seed %s, then %s, by %d writes", first, again, api.writes)
	}
	if other := write(&secrets{}); other == first {
		t.Errorf("two clusters have the seed %s", first)
	}
	concurrent := &secrets{before: func(s *corev1.Secret) {
		s.ResourceVersion, s.Data = "2", map[string][]byte{"seed": []byte("7")}
	}}
	if seed := write(concurrent); seed != "7" {
		t.Errorf("the seed %s replaces another controller's", seed)
	}
}
