// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func TestInitialSyncKeepsPagesApart(t *testing.T) {
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
		return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, object.GetName(), errors.New("denied by a webhook"))
	}
	object.SetResourceVersion("2")
	return nil
}

// An object that can't be written doesn't keep the others from being adopted, and is retried
// before.
func TestInitialSyncOfRejected(t *testing.T) {
	api := &rejecting{services: map[string]*corev1.Service{}}
	for _, name := range []string{"a", "rejected", "z"} {
		svc := &corev1.Service{}
		svc.Name, svc.Namespace, svc.ResourceVersion = name, "x", "1"
		svc.Spec.Type, svc.Spec.IPFamilies = corev1.ServiceTypeLoadBalancer, []corev1.IPFamily{corev1.IPv4Protocol}
		api.services[name] = svc
	}
	d := newDeps(Options{DefaultClass: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	d.Client, d.live = api, api
	held, err := initialSync{deps: d, until: time.Now().Add(time.Second / 2)}.adoptAll(t.Context())
	if err != nil || len(held) != len(api.services) || api.rejected < 2 {
		t.Errorf("%d of %d objects after %d rejections: %v", len(held), len(api.services), api.rejected, err)
	}
}
