// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// memory is an API server with Services and the objects of addresses.
type memory struct {
	clock     int
	services  map[types.NamespacedName][]*corev1.Service // all versions, none of deleted ones
	addresses map[string]*v1alpha1.AssignedAddress
	// written is called with each new version of a Service.
	written func(*corev1.Service)
}

func newMemory() *memory {
	return &memory{
		services: map[types.NamespacedName][]*corev1.Service{}, addresses: map[string]*v1alpha1.AssignedAddress{},
		written: func(*corev1.Service) {},
	}
}

func (m *memory) newest(name types.NamespacedName) *corev1.Service {
	all := m.services[name]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (m *memory) addressNames() []string { return slices.Sorted(maps.Keys(m.addresses)) }

func (m *memory) version() string {
	m.clock++
	return strconv.Itoa(m.clock)
}

// put stores a version of a Service.
func (m *memory) put(svc *corev1.Service) {
	svc.ResourceVersion = m.version()
	name := client.ObjectKeyFromObject(svc)
	m.services[name] = append(m.services[name], svc)
	m.written(svc)
}

// memoryClient is a client of memory.
type memoryClient struct {
	client.Client
	*memory
	// send sends a write; nil to apply it.
	send func(write func() error) error
	// pick picks a number that is less than n, to read an old version of a Service, but none that
	// is older than the last seen one; nil for the newest.
	pick func(n int) int
	seen map[types.NamespacedName]int
}

var resource = schema.GroupResource{Resource: "objects"}

func conflict(name string) error {
	return apierrors.NewConflict(resource, name, errors.New("another version"))
}

func (c *memoryClient) write(write func() error) error {
	if c.send == nil {
		return write()
	}
	return c.send(write)
}

func (c *memoryClient) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *corev1.Service:
		all := c.services[key]
		if len(all) == 0 {
			return apierrors.NewNotFound(resource, key.Name)
		}
		at := len(all) - 1
		if c.pick != nil {
			first := slices.IndexFunc(all, func(svc *corev1.Service) bool { return versionOf(svc) >= c.seen[key] })
			at = first + c.pick(len(all)-first)
			c.seen[key] = versionOf(all[at])
		}
		all[at].DeepCopyInto(object)
	case *v1alpha1.AssignedAddress:
		stored := c.addresses[key.Name]
		if stored == nil {
			return apierrors.NewNotFound(resource, key.Name)
		}
		stored.DeepCopyInto(object)
	default:
		return fmt.Errorf("%T is not stored", object)
	}
	return nil
}

func (c *memoryClient) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.ServiceList:
		for name := range c.services {
			list.Items = append(list.Items, *c.newest(name).DeepCopy())
		}
	case *v1alpha1.AssignedAddressList:
		for _, object := range c.addresses {
			list.Items = append(list.Items, *object.DeepCopy())
		}
	}
	return nil
}

func (c *memoryClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	sent := object.DeepCopyObject().(*v1alpha1.AssignedAddress)
	return c.write(func() error {
		if c.addresses[sent.Name] != nil {
			return apierrors.NewAlreadyExists(resource, sent.Name)
		}
		return c.store(sent, object)
	})
}

func (c *memoryClient) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	sent := object.DeepCopyObject().(*v1alpha1.AssignedAddress)
	return c.write(func() error {
		switch stored := c.addresses[sent.Name]; {
		case stored == nil:
			return apierrors.NewNotFound(resource, sent.Name)
		case stored.ResourceVersion != sent.ResourceVersion:
			return conflict(sent.Name)
		}
		return c.store(sent, object)
	})
}

func (c *memoryClient) store(sent *v1alpha1.AssignedAddress, response client.Object) error {
	stored := sent.DeepCopy()
	stored.ResourceVersion = c.version()
	if stored.UID == "" {
		stored.UID = types.UID(stored.ResourceVersion)
	}
	c.addresses[sent.Name] = stored
	stored.DeepCopyInto(response.(*v1alpha1.AssignedAddress))
	return nil
}

func (c *memoryClient) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	name := object.GetName()
	return c.write(func() error {
		stored := c.addresses[name]
		if stored == nil {
			return apierrors.NewNotFound(resource, name)
		}
		if p := o.Preconditions; p != nil && (*p.ResourceVersion != stored.ResourceVersion || *p.UID != stored.UID) {
			return conflict(name)
		}
		delete(c.addresses, name)
		c.clock++
		return nil
	})
}

func (c *memoryClient) Status() client.SubResourceWriter { return memoryStatus{c: c} }

type memoryStatus struct {
	client.SubResourceWriter
	c *memoryClient
}

func (s memoryStatus) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	sent := object.DeepCopyObject().(*corev1.Service)
	return s.c.write(func() error {
		stored := s.c.newest(client.ObjectKeyFromObject(sent))
		switch {
		case stored == nil:
			return apierrors.NewNotFound(resource, sent.Name)
		case stored.ResourceVersion != sent.ResourceVersion:
			return conflict(sent.Name)
		case equality.Semantic.DeepEqual(stored.Status, sent.Status):
			return nil
		}
		next := stored.DeepCopy()
		next.Status = *sent.Status.DeepCopy()
		for i := range next.Status.Conditions { // a status has seconds
			c := &next.Status.Conditions[i]
			c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(1e9))
		}
		s.c.put(next)
		object.SetResourceVersion(next.ResourceVersion)
		return nil
	})
}
