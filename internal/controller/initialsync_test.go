// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// rejecting is an API server that rejects writes of one Service by a webhook.
type rejecting struct {
	client.Client
	services map[string]*corev1.Service
	reason   error
	rejected int
}

func (r *rejecting) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if all, ok := list.(*corev1.ServiceList); ok {
		for _, svc := range r.services {
			all.Items = append(all.Items, *svc.DeepCopy())
		}
	}
	return nil
}

func (r *rejecting) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.services[key.Name].DeepCopyInto(object.(*corev1.Service))
	return nil
}

func (r *rejecting) Status() client.SubResourceWriter { return rejectingStatus{r: r} }

type rejectingStatus struct {
	client.SubResourceWriter
	r *rejecting
}

func (s rejectingStatus) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	if object.GetName() == "rejected" {
		s.r.rejected++
		return s.r.reason
	}
	object.SetResourceVersion("2")
	return nil
}

// An object that can't be written doesn't keep the others from being adopted, and is retried
// before.
func TestInitialSyncRejected(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	for name, reason := range map[string]error{
		"denied by a webhook":     apierrors.NewForbidden(services, "rejected", errors.New("denied")),
		"webhook unreachable":     apierrors.NewInternalError(errors.New("failed calling webhook")),
		"webhook timed out":       apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0),
		"server timed out":        apierrors.NewServerTimeout(services, "patch", 1),
		"gateway timed out (504)": apierrors.NewGenericServerResponse(http.StatusGatewayTimeout, "patch", services, "rejected", "", 0, true),
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &rejecting{services: map[string]*corev1.Service{}, reason: reason}
			for _, name := range []string{"a", "rejected", "z"} {
				svc := &corev1.Service{}
				svc.Name, svc.Namespace, svc.ResourceVersion = name, "x", "1"
				svc.Spec.Type, svc.Spec.IPFamilies = corev1.ServiceTypeLoadBalancer, []corev1.IPFamily{corev1.IPv4Protocol}
				api.services[name] = svc
			}
			d := newDeps(Options{DefaultClass: DefaultClassAlways, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
			d.Client, d.live = api, api
			held, err := initialSync{deps: d, until: time.Now().Add(time.Second / 2)}.adoptAll(t.Context())
			if err != nil || len(held) != len(api.services) || api.rejected != 2 {
				t.Errorf("%s: %d of %d objects after %d rejections: %v", name, len(held), len(api.services), api.rejected, err)
			}
		})
	}
}

// newer is an API server that has a newer version of a LoadBalancer, as JSON.
type newer struct {
	client.Client
	text string
}

func (n newer) Status() client.SubResourceWriter { return conflicting{} }

func (n newer) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return json.Unmarshal([]byte(n.text), object)
}

type conflicting struct{ client.SubResourceWriter }

func (conflicting) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "loadbalancers"}, object.GetName(), errors.New("changed"))
}

// An object that changes during the initial sync has nothing of its former version.
func TestInitialSyncConflict(t *testing.T) {
	api := newer{text: `{"metadata":{"name":"a","namespace":"x","resourceVersion":"2"},"spec":{},"status":{"address":"203.0.113.1"}}`}
	d := newDeps(Options{})
	d.Client, d.live = api, api
	former := &v1alpha1.LoadBalancer{}
	former.Name, former.Namespace, former.ResourceVersion = "a", "x", "1"
	former.Labels, former.Spec.AddressPool = map[string]string{"tier": "gold"}, "gold"
	held, err := initialSync{deps: d}.adopt(t.Context(), balancer{former})
	if err != nil || len(held.Addresses) != 1 || held.Owner.Name != "a" || held.Pool != "" || len(held.Labels) > 0 {
		t.Errorf("adopted %+v, %v; want the newer version", held, err)
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
