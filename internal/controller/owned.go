// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owned is an object that has addresses: a service or a balancer.
type owned interface {
	object() client.Object
	request() addressRequest
	// shown returns the addresses in the status, hide removes some of them.
	shown() []netip.Addr
	hide(addresses []netip.Addr)
	// conditions returns the status's conditions, and the type of the condition about addresses.
	conditions() (all *[]metav1.Condition, allocated string)
	// group returns the published group.
	group() string
}

// allocate requests an object's addresses, and removes the others from its status. If retry
// isn't 0 there is no result yet.
func (o *deps) allocate(ctx context.Context, s owned) (result allocation, retry time.Duration, err error) {
	req := s.request()
	if !o.allocations.HasNamespace(req.Owner.Namespace) {
		return allocation{}, staleDelay, nil
	}
	if o.allocations.Outdated(req) {
		newest, err := o.isNewest(ctx, s.object())
		if err != nil || !newest {
			return allocation{}, staleDelay, err
		}
	}
	if result = o.allocations.Request(req); result.Changed {
		o.enqueueCounts()
	}
	// Former addresses, and those that were never assigned.
	removed := slices.Clone(result.Releasing)
	for _, a := range s.shown() {
		if !slices.Contains(result.Addresses, a) && !slices.Contains(removed, a) {
			removed = append(removed, a)
		}
	}
	if len(removed) > 0 {
		if result, retry, err = o.hide(ctx, s, removed); retry > 0 || err != nil {
			return allocation{}, retry, err
		}
	}
	if result.waits(s.shown()) {
		return allocation{}, withheldDelay, nil
	}
	return result, 0, nil
}

// withheldDelay is the retry delay while another object's status shows an address. That may
// last: a policy may reject its write.
const withheldDelay = 250 * time.Millisecond

// isNewest reports whether the API server itself has no newer version of an object.
// Versions decrease when its database is restored.
func (o *deps) isNewest(ctx context.Context, object client.Object) (bool, error) {
	now := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if err := o.live.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil {
		return false, err
	}
	return now.GetResourceVersion() == object.GetResourceVersion(), nil
}

// hide removes addresses from an object's status, and returns the remaining allocation.
func (o *deps) hide(ctx context.Context, s owned, removed []netip.Addr) (result allocation, retry time.Duration, err error) {
	base := copyOf(s.object())
	s.hide(removed)
	conditions, allocated := s.conditions()
	releasing := condition(allocated, false, reasonReleasing, "releasing "+list(removed))
	releasing.LastTransitionTime = metav1.NewTime(time.Now()) // so that each write creates a new version
	set(conditions, releasing)
	o.written.attempt(s.request().Owner, s.shown())
	written, err := o.patchStatus(ctx, s.object(), base)
	switch {
	case err != nil:
		return allocation{}, 0, err // retried with backoff
	case !written:
		return allocation{}, time.Second, nil
	}
	owner := s.request().Owner
	if _, is := s.(service); is {
		o.written.set(owner, s.shown())
	}
	o.allocations.StatusWritten(owner, s.shown())
	o.enqueueCounts()
	return o.allocations.Get(owner), 0, nil
}

// publish writes a status if it differs from base, and an Event for each condition that
// differs from before, the conditions at the start of this run.
func (o *deps) publish(ctx context.Context, object, base client.Object, before, conditions []metav1.Condition) error {
	if equality.Semantic.DeepEqual(object, base) {
		return nil
	}
	if err := o.lease.check(); err != nil { // after the version was read
		return err
	}
	if _, err := o.patchStatus(ctx, object, base); err != nil {
		return err
	}
	o.recordEvents(object, before, conditions)
	return nil
}

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object)
}
