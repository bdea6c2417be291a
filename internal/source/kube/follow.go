// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/internal/wait"
)

// Endpoints follows the endpoints of Services of one namespace, by the rules of a Source. It lists and watches the
// EndpointSlices of that namespace only: a Role is enough.
type Endpoints struct {
	clients
	namespace string
}

// NewEndpoints returns the endpoints of the Services of a namespace.
func NewEndpoints(api *rest.Config, namespace string) (*Endpoints, error) {
	c, err := newClients(api)
	return &Endpoints{c, namespace}, err
}

// followAgain is how often backends are reported that haven't changed: they are current.
const followAgain = 10 * time.Second

// Follow reports the backends of a service and the problems of others, or why these may be old, until ctx ends. Without
// any EndpointSlice there is no first report of backends: the Service is missing.
func (e *Endpoints) Follow(ctx context.Context, f source.Follow, s *lb.Service, report source.ReportBackends) {
	list := cache.NewFilteredListWatchFromClient(e.discovery, "endpointslices", e.namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = discoveryv1.LabelServiceName + "=" + f.Service
	})
	store := &sliceStore{wake: make(chan struct{}, 1)}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { reflectList(ctx, &noted{list, store.note}, &discoveryv1.EndpointSlice{}, store) })
	again := time.NewTicker(followAgain)
	defer again.Stop()
	for found := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-store.wake:
		case <-again.C:
		}
		all, err := store.current()
		if found = found || len(all) > 0; err == nil && !found {
			err = fmt.Errorf("service %s has no EndpointSlices in the namespace %s", f.Service, e.namespace)
		}
		if errors.Is(err, errNotListed) {
			continue
		}
		backends, problems := backendsOf(f, s, all)
		report(backends, problems, err)
	}
}

// sliceStore is the store of a reflector: the EndpointSlices of a Service.
type sliceStore struct {
	// wake is signalled after each change.
	wake chan struct{}

	mu sync.Mutex
	// all are nil before they have been listed.
	all map[string]*slice
	// failure is the last error of a request, until the list is watched.
	failure error
}

var errNotListed = errors.New("not listed yet")

// current returns the slices, or why they may be old.
func (s *sliceStore) current() (all []*slice, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil && s.all == nil {
		return nil, errNotListed
	}
	return slices.Collect(maps.Values(s.all)), s.failure
}

func (s *sliceStore) change(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	wait.Signal(s.wake)
}

// note records the result of a request.
func (s *sliceStore) note(err error, watched bool) {
	if err != nil || watched {
		s.change(func() { s.failure = err })
	}
}

// Add implements cache.ReflectorStore.
func (s *sliceStore) Add(obj any) error {
	if es, ok := obj.(*discoveryv1.EndpointSlice); ok {
		s.change(func() { s.all[es.Name] = readSlice(es) })
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *sliceStore) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *sliceStore) Delete(obj any) error {
	if es, ok := obj.(*discoveryv1.EndpointSlice); ok {
		s.change(func() { delete(s.all, es.Name) })
	}
	return nil
}

// Replace implements cache.ReflectorStore for a complete list.
func (s *sliceStore) Replace(list []any, _ string) error {
	all := make(map[string]*slice, len(list))
	for _, obj := range list {
		if es, ok := obj.(*discoveryv1.EndpointSlice); ok {
			all[es.Name] = readSlice(es)
		}
	}
	s.change(func() { s.all = all })
	return nil
}

// Resync implements cache.ReflectorStore; it does nothing.
func (*sliceStore) Resync() error { return nil }

// backendsOf returns the endpoints of a port in slices, by its name or its number there, and the problems of others. They
// are of the VIP's family; or, in modes that don't translate, of the other one if no slice is of that.
func backendsOf(f source.Follow, s *lb.Service, all []*slice) (backends []lb.Backend, problems []string) {
	other := func(one *slice) bool { return one.four != s.Address.Is4() }
	if same := slices.DeleteFunc(slices.Clone(all), other); len(same) > 0 || s.Forward.Translates() {
		all = same
	}
	var of []portSlice
	unused := 0
	for _, one := range all {
		at := slices.IndexFunc(one.ports, func(p spec.SlicePort) bool {
			protocol, _ := spec.Protocol(p.Protocol)
			return protocol == s.Protocol && (p.Name == f.Port || strconv.Itoa(int(p.Number)) == f.Port)
		})
		if at >= 0 {
			of = append(of, portSlice{one, one.ports[at].Number})
		} else {
			unused += len(one.endpoints)
		}
	}
	if unused > 0 || len(all) == 0 {
		problems = append(problems, fmt.Sprintf("no port %s (%s) of the VIP's family at %d endpoints", f.Port, s.Protocol, unused))
	}
	own, _ := source.OwnAddresses()
	found := slices.DeleteFunc(targets(of), func(t target) bool {
		self := slices.Contains(own, t.address)
		if self {
			problems = append(problems, fmt.Sprintf("endpoint %s is this balancer itself", t.address))
		}
		return self
	})
	return pods(found), problems
}
