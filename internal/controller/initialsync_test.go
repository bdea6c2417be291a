// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
)

// pages is an API server that lists LoadBalancers in pages of one, as JSON.
type pages struct {
	client.Reader
	items []string
}

func (p pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, wanted := list.(*v1alpha1.LoadBalancerList); !wanted {
		return nil
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	page, next := 0, ""
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &page); err != nil {
			return err
		}
	}
	if page+1 < len(p.items) {
		next = fmt.Sprint(page + 1)
	}
	text := fmt.Sprintf(`{"metadata":{"continue":%q},"items":[%s]}`, next, p.items[page])
	return json.Unmarshal([]byte(text), list)
}

// An object of a page has nothing of the one at its place on the page before.
func TestInitialSyncPages(t *testing.T) {
	d := newDeps(Options{})
	d.live = pages{items: []string{
		`{"metadata":{"name":"a","namespace":"x","labels":{"tier":"gold"}},"spec":{"addressPool":"gold"},"status":{"address":"203.0.113.1"}}`,
		`{"metadata":{"name":"b","namespace":"x"},"spec":{},"status":{"address":"203.0.113.2"}}`,
	}}
	held, err := initialSync{deps: d}.adoptAll(t.Context())
	if err != nil || len(held) != 2 {
		t.Fatalf("%d objects, %v, want 2", len(held), err)
	}
	if a, b := held[0], held[1]; a.Pool != "gold" || b.Owner.Name != "b" || b.Pool != "" || len(b.Labels) > 0 {
		t.Errorf("%+v and %+v", a.addressRequest, b.addressRequest)
	}
}

// A reconciler whose run has failed is retried with backoff, and not at the time that it
// returns as well.
func TestRetryBackoff(t *testing.T) {
	d := newDeps(Options{})
	close(d.synced)
	failed := errors.New("failed")
	run := func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: time.Second}, failed
	}
	if result, err := d.afterSync(run).Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, failed) || !result.IsZero() {
		t.Errorf("%+v with error %v, want the error alone", result, err)
	}
}

// versioned is an API server whose objects have one version.
type versioned struct {
	client.Reader
	version string
}

func (v versioned) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetResourceVersion(v.version)
	return nil
}

// A cache that is older than the last decision has to catch up, unless the API server itself is
// older: its database was restored.
func TestOlderVersion(t *testing.T) {
	for version, want := range map[string]time.Duration{"120": staleDelay, "50": 0} {
		svc := &corev1.Service{}
		svc.Name, svc.Namespace, svc.ResourceVersion = "a", "x", "100"
		d := newDeps(Options{})
		d.live = versioned{version: version}
		d.allocations.SetNamespace("x", nil, true)
		d.allocations.Request(service{svc}.request())
		svc.ResourceVersion = "50"
		if _, retry, err := d.allocate(t.Context(), service{svc}); retry != want || err != nil {
			t.Errorf("the API server has version %s: retry in %v, %v, want %v", version, retry, err, want)
		}
	}
}
