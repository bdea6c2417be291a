// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// faulty is a store of which calls fail.
type faulty struct {
	Store
	mu sync.Mutex
	// fails decides whether a call fails before it is done, or after that; nil for never.
	fails func() (before, after bool)
}

var errAway = errors.New("the store is away")

func (f *faulty) call(do func() error) error {
	f.mu.Lock()
	before, after := false, false
	if f.fails != nil {
		before, after = f.fails()
	}
	f.mu.Unlock()
	if before {
		return errAway
	}
	if err := do(); err != nil || !after {
		return err
	}
	return errAway
}

func (f *faulty) Get(ctx context.Context, project, name string) (text []byte, err error) {
	err = f.call(func() error {
		text, err = f.Store.Get(ctx, project, name)
		return err
	})
	return text, err
}

func (f *faulty) Create(ctx context.Context, project string, object *unstructured.Unstructured) error {
	return f.call(func() error { return f.Store.Create(ctx, project, object) })
}

func (f *faulty) Update(ctx context.Context, project string, object *unstructured.Unstructured) error {
	return f.call(func() error { return f.Store.Update(ctx, project, object) })
}

func (f *faulty) Delete(ctx context.Context, project string, object *unstructured.Unstructured) error {
	return f.call(func() error { return f.Store.Delete(ctx, project, object) })
}
