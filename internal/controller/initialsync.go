// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
)

// initialSync reads the decisions of earlier leaders, and invalidates their pending writes.
// It runs once this process is the leader, before any reconciler does.
type initialSync struct {
	*deps
	// until is from when on an object is adopted without a write that the API server rejects.
	until time.Time
}

// rejectionTimeout is how long an initial sync retries rejected writes: the default time-out of
// requests at an API server, after which one that an earlier leader began has ended.
const rejectionTimeout = time.Minute

func (t initialSync) run(ctx context.Context) error {
	started := time.Now()
	t.until = started.Add(rejectionTimeout)
	var held []adopted
	err := t.retry(ctx, "initial sync", func() (err error) {
		if err = t.readPools(ctx); err == nil {
			held, err = t.adoptAll(ctx)
		}
		return err
	})
	if err != nil {
		return nil //nolint:nilerr // ctx ended
	}
	for _, one := range held {
		if one.Owner.Kind == kindService && !one.Foreign {
			t.written.set(one.Owner, one.Addresses)
		}
	}
	for _, c := range t.allocations.Adopt(held) {
		t.log.Warn("address in two statuses, older object keeps it", "object", c.Owner, "address", c.Address, "error", c.Err)
	}
	close(t.synced)
	t.enqueueCounts()
	t.log.Info("initial sync done", "objects", len(held), "waiting", t.allocations.Waiting(), "duration", time.Since(started))
	return nil
}

// readPools reads namespaces and pools.
func (t initialSync) readPools(ctx context.Context) error {
	namespaces := namespaceList()
	if err := t.List(ctx, namespaces); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	for i := range namespaces.Items {
		t.allocations.SetNamespace(namespaces.Items[i].Name, namespaces.Items[i].Labels, true)
	}
	var pools v1alpha1.AddressPoolList
	if err := t.live.List(ctx, &pools); err != nil { // with the retentions of an earlier leader
		return fmt.Errorf("pools: %w", err)
	}
	valid, _ := parsePools(pools.Items)
	t.allocations.SetPools(valid)
	for i := range pools.Items {
		t.allocations.Restore(pools.Items[i].Status.Retained)
	}
	return nil
}

// pageSize is the size of a list's pages. All pages are of the same version.
const pageSize = 500

// adoptAll lists all Services and LoadBalancers at the API server itself, fences those that
// may get an address, and returns the addresses in their statuses.
func (t initialSync) adoptAll(ctx context.Context) (held []adopted, err error) {
	for _, all := range []struct {
		of string
		// page returns an empty list: JSON is decoded into the objects that a list has.
		page func() client.ObjectList
	}{
		{"services", func() client.ObjectList { return &corev1.ServiceList{} }},
		{"load balancers", func() client.ObjectList { return &v1alpha1.LoadBalancerList{} }},
	} {
		for token, more := "", true; more; more = token != "" {
			page := all.page()
			err := t.live.List(ctx, page, client.Limit(pageSize), client.Continue(token))
			if err == nil {
				held, err = t.adoptPage(ctx, page, held)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all.of, err)
			}
			token = page.GetContinue()
		}
	}
	return held, nil
}

// adoptPage adopts the objects of a page concurrently, as each may have to be written. It
// adds the results, in their order.
func (t initialSync) adoptPage(ctx context.Context, list client.ObjectList, held []adopted) ([]adopted, error) {
	page, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	all := make([]*adopted, len(page))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range page {
		group.Go(func() (err error) {
			switch o := page[i].(type) {
			case *corev1.Service:
				all[i], err = t.adopt(ctx, service{o})
			case *v1alpha1.LoadBalancer:
				all[i], err = t.adopt(ctx, balancer{o})
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, one := range all {
		if one != nil {
			held = append(held, *one)
		}
	}
	return held, nil
}

// adopt returns an object's addresses, as read from its newest version, also those that another
// controller assigned; nil if it has none and is not and was not ours, or doesn't exist any more.
// If it is ours and may get another address it is fenced first.
func (t initialSync) adopt(ctx context.Context, o owned) (*adopted, error) {
	for {
		serves := true
		if svc, is := o.(service); is {
			if serves = t.isOurs(svc.Service); !serves && !isMarked(svc.Service) {
				return t.foreign(svc.Service), nil
			}
		}
		held := &adopted{addressRequest: o.request(), Addresses: o.shown()}
		if !serves {
			held.Families = nil // gets no address
		}
		if serves && mayGrow(held.addressRequest, held.Addresses) {
			base := copyOf(o.object())
			fence(o.conditions())
			retry, err := t.fenceWrite(ctx, o.object(), base)
			if retry && err == nil {
				continue
			}
			if err != nil {
				return nil, client.IgnoreNotFound(err)
			}
		}
		if group := o.group(); group != "" { // a refused Service's isn't known
			t.groups.restore(held.Owner, group)
		}
		return held, nil
	}
}

// foreign returns a Service that has data of another controller, with the addresses in its status, if
// any; nil for other Services.
func (t initialSync) foreign(svc *corev1.Service) *adopted {
	if !isForeign(svc) {
		return nil
	}
	return &adopted{addressRequest: service{svc}.request(), Addresses: service{svc}.shown(), Foreign: true, Claimable: t.isAdoptable(svc)}
}

// mayGrow reports whether a pending write of an earlier leader may add an address to a
// status: one of a family that it lacks, or one that the object was given before its request
// became invalid.
func mayGrow(q addressRequest, shown []netip.Addr) bool {
	return q.Invalid != nil || slices.ContainsFunc(q.Families, func(f alloc.Family) bool {
		return !slices.ContainsFunc(shown, func(a netip.Addr) bool { return alloc.FamilyOf(a) == f })
	})
}

// fence sets a condition to Unknown with a new timestamp, so that the write always changes
// resourceVersion.
func fence(conditions *[]metav1.Condition, kind string) {
	c := metav1.Condition{Type: kind, Reason: reasonTakenOver, Message: "controller starting"}
	if old := meta.FindStatusCondition(*conditions, kind); old != nil {
		c = *old
	}
	c.Status = metav1.ConditionUnknown
	c.LastTransitionTime = metav1.NewTime(time.Now())
	set(conditions, c)
}

// fenceWrite writes a new version of an object's status, so that pending writes of earlier
// leaders, which are based on older versions, are rejected. If the object was changed
// concurrently, or the write changed nothing, it is read again and retry is true.
func (t initialSync) fenceWrite(ctx context.Context, object, base client.Object) (retry bool, err error) {
	written, err := t.patchStatus(ctx, object, base)
	switch {
	case err == nil && written || apierrors.IsInvalid(err):
		return false, nil // nor can an earlier leader write it
	case isRejection(err) && time.Now().After(t.until):
		t.log.Warn("object can't be written, its address is assigned when it can", "object", client.ObjectKeyFromObject(object), "error", err)
		return false, nil
	case err != nil && !isRejection(err) && !apierrors.IsConflict(err):
		return false, err
	case !apierrors.IsConflict(err):
		// Timestamps have seconds: the last fence was in the same second. A policy or a webhook
		// that rejects the object may be changed.
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	key := client.ObjectKeyFromObject(object)
	reflect.ValueOf(object).Elem().SetZero() // decoding JSON keeps fields that it lacks
	return true, t.live.Get(ctx, key, object)
}

// isRejection reports whether the API server rejects a write because of its content, as a
// policy or a webhook does, also by a time-out, and not because it is unavailable.
func isRejection(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}
