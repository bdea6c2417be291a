// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
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

// allocate requests an object's addresses, and writes their objects, so that a write of the status may
// have them. If retry isn't 0 there is no result yet.
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
	blocked, err := o.own(ctx, result, s.shown())
	if err != nil || len(blocked) == 0 {
		return result, 0, err
	}
	// The owners that have to leave may wait for addresses of this one, or for a change of its entry.
	surplus := slices.DeleteFunc(s.shown(), func(a netip.Addr) bool {
		return slices.Contains(result.Addresses, a) && !slices.Contains(blocked, a)
	})
	if len(surplus) > 0 {
		if retry, err := o.hide(ctx, s, surplus); retry > 0 || err != nil {
			return allocation{}, retry, err
		}
	}
	if retry, err = o.leave(ctx, s, blocked...); err != nil {
		return allocation{}, 0, err
	}
	return allocation{}, cmp.Or(retry, blockedDelay), nil
}

// blockedDelay is the retry delay while the object of an address lists an owner that has to leave. That
// may last: a policy may reject the write of its status.
const blockedDelay = 250 * time.Millisecond

// own has the objects of allocated addresses list their owner, and returns those in which other owners have to
// leave first. Addresses that a status shows have objects, too, if no others have them: as of a former
// version, or if they were deleted.
func (o *deps) own(ctx context.Context, result allocation, shown []netip.Addr) (blocked []netip.Addr, err error) {
	for _, a := range slices.Concat(result.Addresses, shown) {
		object, blockedBy := o.allocations.objects.claim(result.Request, a, slices.Contains(shown, a))
		decided := slices.Contains(result.Addresses, a)
		if len(blockedBy) > 0 && decided {
			blocked = append(blocked, a)
			for _, other := range blockedBy {
				o.enqueue(other)
			}
		}
		if object == nil {
			continue
		}
		write := func() error { return o.Create(ctx, object) }
		if object.ResourceVersion != "" {
			write = func() error { return o.Update(ctx, object) }
		}
		if err := o.writeAddress(ctx, object, write); err != nil && (decided || !apierrors.IsInvalid(err)) {
			return nil, fmt.Errorf("address %s: %w", a, err)
		}
	}
	return blocked, nil
}

// writeAddress writes the object of an address, or reads it if it isn't the known version.
func (o *deps) writeAddress(ctx context.Context, object *v1alpha1.AssignedAddress, write func() error) error {
	err := write()
	if err == nil {
		o.allocations.Observe(object.Name, object)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	if err := o.readAddress(ctx, object.Name); err != nil {
		return err
	}
	return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.Group, Resource: "assignedaddresses"}, object.Name, err)
}

// readAddress reads the object of an address at the API server.
func (o *deps) readAddress(ctx context.Context, name string) error {
	var object v1alpha1.AssignedAddress
	err := o.live.Get(ctx, client.ObjectKey{Name: name}, &object)
	switch {
	case apierrors.IsNotFound(err):
		o.allocations.Observe(name, nil)
	case err != nil:
		return err
	default:
		o.allocations.Observe(name, &object)
	}
	return nil
}

// leave removes an object from the objects of addresses that it doesn't have any more, or that are blocked,
// and that its status doesn't show. That takes a version of the status that is newer than the one to which the
// address may be added: if there is none yet it is written.
func (o *deps) leave(ctx context.Context, s owned, blocked ...netip.Addr) (retry time.Duration, err error) {
	owner, segment := s.request().Owner, s.request().Segment
	for _, f := range o.allocations.Former(owner, blocked...) {
		if a, in := addressIn(f.AssignedAddress); in == segment && slices.Contains(s.shown(), a) {
			continue // until the status is written
		}
		if !isNewer(s.object().GetResourceVersion(), f.version) {
			if retry, err = o.hide(ctx, s, nil); retry > 0 || err != nil {
				return retry, err
			}
			retry = staleDelay // restores the condition
		}
		if err := o.remove(ctx, f); err != nil {
			return 0, err
		}
	}
	return retry, nil
}

// remove writes the object of an address without a former owner.
func (o *deps) remove(ctx context.Context, f former) error {
	defer o.enqueueCounts() // retentions end
	if len(f.Spec.Owners) == 0 && f.Spec.Retained == nil {
		return o.deleteAddress(ctx, f.AssignedAddress)
	}
	return o.writeAddress(ctx, f.AssignedAddress, func() error { return o.Update(ctx, f.AssignedAddress) })
}

// deleteAddress deletes the object of an address if it is the known version.
func (o *deps) deleteAddress(ctx context.Context, object *v1alpha1.AssignedAddress) error {
	err := o.Delete(ctx, object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion})
	if err == nil || apierrors.IsNotFound(err) {
		o.allocations.Observe(object.Name, nil)
		return nil
	}
	return o.writeAddress(ctx, object, func() error { return err })
}

// isNewest reports whether the API server itself has no newer version of an object.
// Versions decrease when its database is restored.
func (o *deps) isNewest(ctx context.Context, object client.Object) (bool, error) {
	now := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if err := o.live.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil {
		return false, err
	}
	return now.GetResourceVersion() == object.GetResourceVersion(), nil
}

// hide writes a new version of an object's status, without some addresses.
func (o *deps) hide(ctx context.Context, s owned, removed []netip.Addr) (retry time.Duration, err error) {
	base := copyOf(s.object())
	s.hide(removed)
	conditions, allocated := s.conditions()
	releasing := condition(allocated, false, reasonReleasing, "releasing "+list(removed))
	releasing.LastTransitionTime = metav1.NewTime(time.Now()) // so that each write creates a new version
	set(conditions, releasing)
	owner := s.request().Owner
	o.written.attempt(owner, s.shown())
	written, err := o.patchStatus(ctx, s.object(), base)
	switch {
	case err != nil:
		return 0, err // retried with backoff
	case !written:
		return time.Second, nil
	}
	if _, is := s.(service); is {
		o.written.set(owner, s.shown())
	}
	return 0, nil
}

// publish writes a status if it differs from base, and an Event for each condition that
// differs from before, the conditions at the start of this run.
func (o *deps) publish(ctx context.Context, object, base client.Object, before, conditions []metav1.Condition) error {
	if equality.Semantic.DeepEqual(object, base) {
		return nil
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
