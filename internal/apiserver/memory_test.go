// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.io/fairlead/api/v1alpha1"
)

// memory is a store with the conflicts of Kubernetes, and one rule: listeners have a port.
type memory struct {
	mu      sync.Mutex
	objects map[string]map[string]*unstructured.Unstructured // by project and name
	version int
	reports map[string]*v1alpha1.BalancerNodeStatus
	// statistics are those of all groups.
	statistics map[string]*v1alpha1.BalancerNodeStatisticsStatus
}

func newMemory() *memory {
	return &memory{objects: map[string]map[string]*unstructured.Unstructured{}}
}

func notThere(name string) error {
	return apierrors.NewNotFound(balancers, name)
}

func (m *memory) Get(_ context.Context, project, name string) (object *unstructured.Unstructured, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if object = m.objects[project][name].DeepCopy(); object == nil {
		return nil, notThere(name)
	}
	return object, nil
}

func (m *memory) List(_ context.Context, project string, page Page) (*unstructured.UnstructuredList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if page.Continue == "expired" {
		return nil, apierrors.NewResourceExpired("too old")
	}
	list := &unstructured.UnstructuredList{}
	for _, name := range slices.Sorted(maps.Keys(m.objects[project])) {
		object := m.objects[project][name]
		if name <= page.Continue || !page.Labels.Matches(labels.Set(object.GetLabels())) {
			continue
		}
		if int64(len(list.Items)) == page.Limit {
			list.SetContinue(list.Items[page.Limit-1].GetName())
			break
		}
		list.Items = append(list.Items, *object.DeepCopy())
	}
	return list, nil
}

func (m *memory) Create(_ context.Context, project string, object *unstructured.Unstructured) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := object.GetName()
	if m.objects[project][name] != nil {
		return apierrors.NewAlreadyExists(balancers, name)
	}
	return m.store(project, object)
}

func (m *memory) Update(_ context.Context, project string, object *unstructured.Unstructured) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.objects[project][object.GetName()]
	switch {
	case current == nil:
		return notThere(object.GetName())
	case current.GetResourceVersion() != object.GetResourceVersion():
		return m.conflict(object)
	case reflect.DeepEqual(current.Object, object.Object):
		return nil
	}
	return m.store(project, object)
}

func (m *memory) Delete(_ context.Context, project string, object *unstructured.Unstructured) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.objects[project][object.GetName()]
	switch {
	case current == nil:
		return notThere(object.GetName())
	case current.GetResourceVersion() != object.GetResourceVersion():
		return m.conflict(object)
	}
	delete(m.objects[project], object.GetName())
	return nil
}

func (m *memory) Reports(context.Context, string) (map[string]*v1alpha1.BalancerNodeStatus, error) {
	return m.reports, nil
}

func (m *memory) Statistics(context.Context, string) (map[string]*v1alpha1.BalancerNodeStatisticsStatus, error) {
	return m.statistics, nil
}

func (m *memory) conflict(object *unstructured.Unstructured) error {
	return apierrors.NewConflict(balancers, object.GetName(), nil)
}

// store stores an object under the next version.
func (m *memory) store(project string, object *unstructured.Unstructured) error {
	listeners, _, _ := unstructured.NestedSlice(object.Object, "spec", "listeners")
	for i, l := range listeners {
		if port, _ := l.(map[string]any)["port"].(int64); port < 1 {
			return apierrors.NewInvalid(v1alpha1.GroupVersion().WithKind("LoadBalancer").GroupKind(), object.GetName(), field.ErrorList{
				field.Invalid(field.NewPath("spec", "listeners").Index(i).Child("port"), port, "want 1 or more"),
			})
		}
	}
	m.version++
	object.SetResourceVersion(strconv.Itoa(m.version))
	if m.objects[project] == nil {
		m.objects[project] = map[string]*unstructured.Unstructured{}
	}
	m.objects[project][object.GetName()] = object.DeepCopy()
	return nil
}

// count returns how many LoadBalancers there are in all projects.
func (m *memory) count() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.objects {
		n += len(all)
	}
	return n
}

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

func (f *faulty) Get(ctx context.Context, project, name string) (object *unstructured.Unstructured, err error) {
	err = f.call(func() error {
		object, err = f.Store.Get(ctx, project, name)
		return err
	})
	return object, err
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
