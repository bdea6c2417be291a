// SPDX-License-Identifier: Apache-2.0

// Package wait has means for goroutines to wait: a value whose changes wake its
// watchers, signals, and the pauses between attempts of an operation that keeps failing.
package wait

import (
	"context"
	"sync"
)

// Value is a value that can be watched. The zero Value holds T's zero value. Its
// methods may be called from several goroutines.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{}
}

// Set replaces the value.
func (v *Value[T]) Set(value T) { v.Modify(func(old *T) { *old = value }) }

// Modify changes the value in place, and wakes all watchers.
func (v *Value[T]) Modify(change func(*T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.value)
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// View calls look with the value, which changes neither meanwhile nor by look.
func (v *Value[T]) View(look func(*T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	look(&v.value)
}

// Get returns the value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

// Watch returns the value and a channel that is closed at the next change. A
// watcher calls Watch again then; however late it does, it gets the newest value.
func (v *Value[T]) Watch() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.value, v.changed
}

// Await returns the first value that it sees for which holds is true, or the
// cause of ctx's end.
func (v *Value[T]) Await(ctx context.Context, holds func(T) bool) (T, error) {
	for {
		value, changed := v.Watch()
		if holds(value) {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return value, context.Cause(ctx)
		}
	}
}

// Signal signals without blocking, by a channel with room for one signal.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
