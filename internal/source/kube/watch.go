// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"fairlead.io/fairlead/internal/source"
)

// backoffReset is how long a list has to be watched for the backoff to start over.
const backoffReset = 10 * time.Second

// follow keeps the cache up to date with a list until ctx ends. The reflector stores objects
// directly in the cache, without another copy. It logs nothing: the state of the API server
// is logged once for all lists.
func (s *Source) follow(ctx context.Context, f watchedList) {
	silent := logr.Discard()
	one, retry := &follower{watchedList: f, source: s}, source.RetryDelay()
	reflector := cache.NewReflectorWithOptions(one, f.example, one, cache.ReflectorOptions{
		Name: string(f.kind), Logger: &silent, Backoff: &apiwait.Backoff{
			Duration: retry.First, Factor: 2, Jitter: retry.Jitter, Steps: 4, Cap: retry.Max,
		},
	})
	ctx = klog.NewContext(ctx, silent)
	for failures := 1; ctx.Err() == nil; failures++ {
		started := time.Now()
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			s.failed(f, err)
		}
		if time.Since(started) > backoffReset {
			failures = 1
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.Delay(failures)):
		}
	}
}

// follower lists and watches objects, and is the store of their reflector: the objects of one
// list in the cache. It records the result of requests, which reflectors retry silently.
type follower struct {
	watchedList
	source *Source
}

func (f *follower) note(err error, well func()) {
	switch {
	case err == nil:
		well()
	case !errors.Is(err, context.Canceled):
		f.source.failed(f.watchedList, err)
	}
}

// ListWithContext implements cache.ListerWithContext.
func (f *follower) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := f.watchedList.ListWithContext(ctx, o)
	f.note(err, func() { f.source.responded(f.watchedList) })
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (f *follower) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := f.watchedList.WatchWithContext(ctx, o)
	f.note(err, func() { f.source.watched(f.watchedList) })
	return w, err
}

// IsWatchListSemanticsUnSupported makes reflectors list and then watch, which any API server
// answers at once. A streamed list (KEP-3157) ends only when the server's cache has caught
// up with etcd, which takes long with older etcds.
func (*follower) IsWatchListSemanticsUnSupported() bool { return true }

var errNoObject = errors.New("not an object")

// Add implements cache.ReflectorStore.
func (f *follower) Add(obj any) error {
	o, ok := obj.(metav1.Object)
	if !ok {
		return errNoObject
	}
	strip(o)
	f.source.changed(f.watchedList, func(w *Cache) { w.Set(o) })
	return nil
}

// Update implements cache.ReflectorStore.
func (f *follower) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *follower) Delete(obj any) error {
	o, ok := obj.(metav1.Object)
	if !ok {
		return errNoObject
	}
	f.source.changed(f.watchedList, func(w *Cache) { w.Delete(name(o)) })
	return nil
}

// Replace implements cache.ReflectorStore for a complete list. Objects that are not in the
// list are deleted.
func (f *follower) Replace(list []any, _ string) error {
	f.source.changed(f.watchedList, func(w *Cache) {
		listed := make(map[Object]bool, len(list))
		for _, obj := range list {
			if o, ok := obj.(metav1.Object); ok {
				listed[name(o)] = true
				strip(o)
				w.Set(o)
			}
		}
		for _, id := range w.Names(f.kind) {
			if !listed[id] && (f.name == "" || id.Name == f.name) {
				w.Delete(id)
			}
		}
	})
	f.source.listed(f.list())
	return nil
}

// Resync implements cache.ReflectorStore; it does nothing.
func (f *follower) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: the API server has responded.
func (f *follower) Bookmark(string) error {
	f.source.responded(f.watchedList)
	return nil
}
