// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"net/url"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// directly in the cache, without another copy.
func (s *Source) follow(ctx context.Context, f watchedList) {
	note := func(err error, watched bool) { s.lists.note(f, err, watched) }
	reflectList(ctx, &noted{f.ListWatch, note}, f.example, &follower{watchedList: f, source: s})
}

// reflectList keeps a store up to date with a list until ctx ends. It logs nothing: the list notes the state of the
// API server.
func reflectList(ctx context.Context, list *noted, example runtime.Object, store cache.ReflectorStore) {
	silent, retry := logr.Discard(), source.RetryDelay()
	reflector := cache.NewReflectorWithOptions(list, example, store, cache.ReflectorOptions{
		Logger: &silent, Backoff: &apiwait.Backoff{
			Duration: retry.First, Factor: 2, Jitter: retry.Jitter, Steps: 4, Cap: retry.Max,
		},
	})
	ctx = klog.NewContext(ctx, silent)
	for failures := 1; ctx.Err() == nil; failures++ {
		started := time.Now()
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			list.result(err, false)
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

// noted lists and watches objects, and notes the result of requests, which reflectors retry silently.
type noted struct {
	*cache.ListWatch
	note func(err error, watched bool)
}

// ListWithContext implements cache.ListerWithContext.
func (n *noted) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := n.ListWatch.ListWithContext(ctx, o)
	n.result(err, false)
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (n *noted) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := n.ListWatch.WatchWithContext(ctx, o)
	if reflect.TypeOf(w) == emptyWatch {
		n.result(errNoResponse, true)
	} else {
		n.result(err, true)
	}
	return w, err
}

// result notes the result of a request, with an error that is equal for all lists. An expired version is not an error:
// the list is read again.
func (n *noted) result(err error, watched bool) {
	if errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer
	} else if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	n.note(err, watched)
}

// emptyWatch is the type that client-go returns in place of time-outs and closed connections.
var emptyWatch, errNoResponse = reflect.TypeOf(watch.NewEmptyWatch()), errors.New("connection closed or timed out")

// IsWatchListSemanticsUnSupported makes reflectors list and then watch, which any API server
// answers at once. A streamed list (KEP-3157) ends only when the server's cache has caught
// up with etcd, which takes long with older etcds.
func (*noted) IsWatchListSemanticsUnSupported() bool { return true }

// follower is the store of a reflector: the objects of one list in the cache.
type follower struct {
	watchedList
	source *Source
}

// Add implements cache.ReflectorStore.
func (f *follower) Add(obj any) error {
	if o, ok := obj.(metav1.Object); ok {
		strip(o)
		f.source.changed(f.watchedList, func(w *Cache) { w.Set(o) })
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (f *follower) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *follower) Delete(obj any) error {
	if o, ok := obj.(metav1.Object); ok {
		f.source.changed(f.watchedList, func(w *Cache) { w.Delete(name(o)) })
	}
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
	f.source.lists.listed(f.list())
	return nil
}

// Resync implements cache.ReflectorStore; it does nothing.
func (f *follower) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: the API server has responded.
func (f *follower) Bookmark(string) error {
	f.source.lists.responded(f.watchedList)
	return nil
}
