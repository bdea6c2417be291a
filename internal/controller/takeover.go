// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
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
	"fairlead.io/fairlead/internal/controller/ledger"
)

// takeOver learns what earlier processes decided, and makes sure that they decide
// nothing more. It runs once this process is the leader, before any reconciler does.
type takeOver struct{ *office }

// NeedLeaderElection has it wait for the lease.
func (takeOver) NeedLeaderElection() bool { return true }

// Start takes over and ends.
func (t takeOver) Start(ctx context.Context) error {
	began := time.Now()
	var held []ledger.Held
	err := t.patiently(ctx, "take over", func() (err error) {
		if err = t.readPlaces(ctx); err == nil {
			held, err = t.readOwners(ctx)
		}
		return err
	})
	if err != nil {
		return nil //nolint:nilerr // the controller ends, which is no error
	}
	for _, c := range t.ledger.Adopt(held) {
		t.log.Warn("address in two statuses, the older object keeps it", "object", c.Owner, "address", c.Address, "error", c.Err)
	}
	close(t.began)
	t.changed()
	t.log.Info("took over", "objects", len(held), "waiting", t.ledger.Waiting(), "duration", time.Since(began))
	return nil
}

// readPlaces tells the ledger of namespaces and pools.
func (t takeOver) readPlaces(ctx context.Context) error {
	namespaces := namespaceList()
	if err := t.List(ctx, namespaces); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	for i := range namespaces.Items {
		t.ledger.SetNamespace(namespaces.Items[i].Name, labelsOf(&namespaces.Items[i], true))
	}
	var pools v1alpha1.AddressPoolList
	if err := t.List(ctx, &pools); err != nil {
		return fmt.Errorf("pools: %w", err)
	}
	sound, _ := readPools(pools.Items)
	t.ledger.SetPools(sound)
	return nil
}

// pageSize is how many objects are asked for at once. All pages are of one moment.
const pageSize = 500

// readOwners lists at the API server itself what statuses show, and closes them.
func (t takeOver) readOwners(ctx context.Context) (held []ledger.Held, err error) {
	var services corev1.ServiceList
	err = t.pages(ctx, &services, func() error {
		page, err := adoptEach(ctx, services.Items, t.adoptService)
		held = append(held, page...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	var balancers v1alpha1.LoadBalancerList
	err = t.pages(ctx, &balancers, func() error {
		page, err := adoptEach(ctx, balancers.Items, t.adoptBalancer)
		held = append(held, page...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load balancers: %w", err)
	}
	return held, nil
}

// adoptEach adopts a page of objects, several at the same time, as each may have to be
// written. It returns what those have that adopt says are there, in their order.
func adoptEach[T any](ctx context.Context, page []T, adopt func(context.Context, *T) (ledger.Held, bool, error)) ([]ledger.Held, error) {
	all := make([]*ledger.Held, len(page))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range page {
		group.Go(func() error {
			held, there, err := adopt(ctx, &page[i])
			if there {
				all[i] = &held
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var held []ledger.Held
	for _, one := range all {
		if one != nil {
			held = append(held, *one)
		}
	}
	return held, nil
}

// pages reads a list page by page.
func (t takeOver) pages(ctx context.Context, list client.ObjectList, read func() error) error {
	for {
		if err := t.live.List(ctx, list, client.Limit(pageSize), client.Continue(list.GetContinue())); err != nil {
			return err
		}
		if err := read(); err != nil {
			return err
		}
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// adoptService returns what a Service has, and whether it is ours, or was.
func (t takeOver) adoptService(ctx context.Context, svc *corev1.Service) (held ledger.Held, ours bool, err error) {
	held, ours, err = t.adopt(ctx, svc, func() (held ledger.Held, ours, open bool) {
		wish, _, _ := serviceWish(svc)
		held = ledger.Held{Wish: wish, Addresses: serviceAddresses(svc)}
		return held, t.ours(svc) || wasOurs(svc), t.ours(svc) && !complete(wish.Families, held.Addresses)
	}, func() { doubt(&svc.Status.Conditions, v1alpha1.ConditionServiceAllocated) })
	if ours {
		t.groups.recall(held.Owner, svc.Annotations[v1alpha1.AnnotationGroup])
	}
	return held, ours, err
}

// adoptBalancer returns what a LoadBalancer has, and whether it is still there.
func (t takeOver) adoptBalancer(ctx context.Context, b *v1alpha1.LoadBalancer) (held ledger.Held, there bool, err error) {
	held, there, err = t.adopt(ctx, b, func() (held ledger.Held, ours, open bool) {
		wish, _ := balancerWish(b)
		held = ledger.Held{Wish: wish, Addresses: balancerAddresses(b)}
		return held, true, !complete(wish.Families, held.Addresses)
	}, func() { doubt(&b.Status.Conditions, v1alpha1.ConditionAllocated) })
	if there {
		t.groups.recall(held.Owner, b.Status.Group)
	}
	return held, there, err
}

// adopt returns what an object has, as read says of its newest version, and whether it
// is ours. If it is open to another address, a version with a doubt is written first.
func (t takeOver) adopt(
	ctx context.Context, object client.Object, read func() (held ledger.Held, ours, open bool), doubt func(),
) (ledger.Held, bool, error) {
	for {
		held, ours, open := read()
		if !ours || !open {
			return held, ours, nil
		}
		base, _ := object.DeepCopyObject().(client.Object)
		doubt()
		again, err := t.closed(ctx, object, base)
		switch {
		case apierrors.IsNotFound(err):
			return held, false, nil
		case err != nil:
			return held, false, err
		case !again:
			return held, true, nil
		}
	}
}

// complete reports whether a status shows an address of every family, so that no
// write may add one.
func complete(families []alloc.Family, shown []netip.Addr) bool {
	return !slices.ContainsFunc(families, func(f alloc.Family) bool {
		return !slices.ContainsFunc(shown, func(a netip.Addr) bool { return alloc.FamilyOf(a) == f })
	})
}

// doubt has a condition say that it isn't known to hold, from now on: that is always
// something new, and keeps what the condition said.
func doubt(conditions *[]metav1.Condition, kind string) {
	c := metav1.Condition{Type: kind, Reason: reasonTakenOver, Message: "a controller begins"}
	if old := meta.FindStatusCondition(*conditions, kind); old != nil {
		c = *old
	}
	c.Status = metav1.ConditionUnknown
	c.LastTransitionTime = metav1.NewTime(time.Now())
	set(conditions, c)
}

// closed writes a new version of an object's status, so that whatever an earlier
// process decided about the one before is refused. again says that somebody else
// wrote meanwhile, or that nothing new was written: object is the newest version
// then, to be looked at once more.
func (t takeOver) closed(ctx context.Context, object, base client.Object) (again bool, err error) {
	written, err := t.patchStatus(ctx, object, base)
	if err == nil && written || apierrors.IsInvalid(err) {
		return false, nil // one that can't be written can't be written by others either
	}
	if err != nil && !apierrors.IsConflict(err) {
		return false, err
	}
	if err == nil {
		// The same second as the last doubt: the next one makes a difference.
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, t.live.Get(ctx, client.ObjectKeyFromObject(object), object)
}
