// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Pauses before a list is followed again: an API server that is back is noticed
// within a few seconds.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 2 * time.Second
	// calm is how long a list has to have been followed for the next pause to be the
	// first again.
	calm = 10 * time.Second
)

// follow keeps the world at what a list has, until ctx ends. Reflectors list, and
// then watch; what they tell goes into the world at once and without a copy. They
// log nothing: what is to be said of the API server is said once for all of them.
func (s *Source) follow(ctx context.Context, f followed) {
	silent := logr.Discard()
	reflector := cache.NewReflectorWithOptions(
		noted{source: s, followed: f, lists: cache.ToListerWatcherWithContext(f.lists)}, f.example,
		&feed{source: s, kind: f.kind, only: f.name},
		cache.ReflectorOptions{Name: string(f.kind), Logger: &silent, Backoff: &wait.Backoff{
			Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: 4, Cap: longestPause,
		}},
	)
	ctx = klog.NewContext(ctx, silent)
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			s.lost(f, err)
		}
		if time.Since(began) > calm {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

// noted takes note of how requests end: reflectors try again without a word when
// nobody answers.
type noted struct {
	source   *Source
	followed followed
	lists    cache.ListerWatcherWithContext
}

func (n noted) note(err error, well func()) {
	switch {
	case err == nil:
		well()
	case !errors.Is(err, context.Canceled):
		n.source.lost(n.followed, err)
	}
}

// ListWithContext implements cache.ListerWithContext.
func (n noted) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := n.lists.ListWithContext(ctx, o)
	n.note(err, n.source.heard)
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (n noted) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := n.lists.WatchWithContext(ctx, o)
	n.note(err, func() { n.source.watched(n.followed) })
	return w, err
}

// IsWatchListSemanticsUnSupported has reflectors list and then watch, which any
// API server answers at once. A list that is streamed (KEP-3157) ends only when the
// server's cache has caught up with etcd, for which older etcds let it wait.
func (noted) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister, which nobody calls.
func (n noted) List(o metav1.ListOptions) (runtime.Object, error) {
	return n.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher, which nobody calls.
func (n noted) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return n.WatchWithContext(context.Background(), o)
}

// feed is the store of one reflector: the world's part of one kind.
type feed struct {
	source *Source
	kind   Kind
	// only is the name of the one object that the list has; empty for all of a kind.
	only string
}

var errNoObject = errors.New("not an object")

// Transformer strips objects also while a first list is gathered.
func (f *feed) Transformer() cache.TransformFunc { return strip }

// Add implements cache.ReflectorStore.
func (f *feed) Add(obj any) error {
	stripped, err := strip(obj)
	if err != nil {
		return err
	}
	o, ok := stripped.(runtime.Object)
	if !ok {
		return errNoObject
	}
	f.source.changed(f.kind, func(w *World) { w.Set(o) })
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(obj any) error {
	o, ok := obj.(runtime.Object)
	if !ok {
		return errNoObject
	}
	if id, known := name(o); known {
		f.source.changed(f.kind, func(w *World) { w.Delete(id) })
	}
	return nil
}

// Replace implements cache.ReflectorStore: a list was read as a whole. What the
// world has and the list has not is gone.
func (f *feed) Replace(list []any, _ string) error {
	f.source.changed(f.kind, func(w *World) {
		listed := make(map[Object]bool, len(list))
		for _, obj := range list {
			if o, ok := obj.(runtime.Object); ok {
				id, _ := name(o)
				listed[id] = true
				stripped, _ := strip(obj)
				w.Set(stripped.(runtime.Object))
			}
		}
		for _, id := range w.Names(f.kind) {
			if !listed[id] && (f.only == "" || id.Name == f.only) {
				w.Delete(id)
			}
		}
	})
	f.source.listed(f)
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (f *feed) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: the API server has said that
// there is nothing new.
func (f *feed) Bookmark(string) error {
	f.source.heard()
	return nil
}
