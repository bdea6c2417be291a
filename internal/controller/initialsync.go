// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
)

// initialSync reads the decisions of earlier leaders. It runs once this process is the leader, before
// any reconciler does.
type initialSync struct{ *deps }

func (t initialSync) run(ctx context.Context) error {
	started := time.Now()
	var held []adopted
	err := t.retry(ctx, "initial sync", func() (err error) {
		if err = t.readPools(ctx); err != nil {
			return err
		}
		if t.options.Nodes == nil { // else they may be unreachable, and LoadBalancers wait for them later
			if _, err = policyReconciler(t).reconcile(ctx, reconcile.Request{}); err != nil {
				return err
			}
		}
		held, err = t.adoptAll(ctx)
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

// readPools reads namespaces, groups and pools.
func (t initialSync) readPools(ctx context.Context) error {
	namespaces := namespaceList()
	if err := t.List(ctx, namespaces); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	for i := range namespaces.Items {
		t.allocations.SetNamespace(namespaces.Items[i].Name, namespaces.Items[i].Labels, true)
	}
	var pools v1alpha1.AddressPoolList
	if err := t.live.List(ctx, &pools); err != nil {
		return fmt.Errorf("pools: %w", err)
	}
	var groups v1alpha1.LoadBalancerGroupList
	if err := t.live.List(ctx, &groups); err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	t.allocations.SetGroups(groups.Items)
	valid, _ := parsePools(pools.Items)
	t.allocations.SetPools(valid)
	return nil
}

// pageSize is the size of a list's pages. All pages are of the same version.
const pageSize = 500

// adoptAll lists all addresses, then all Services and LoadBalancers, at the API server itself, and
// returns the addresses in their statuses.
func (t initialSync) adoptAll(ctx context.Context) (held []adopted, err error) {
	for _, all := range []struct {
		of string
		// page returns an empty list: JSON is decoded into the objects that a list has.
		page func() client.ObjectList
	}{
		{"assigned addresses", func() client.ObjectList { return &v1alpha1.AssignedAddressList{} }},
		{"services", func() client.ObjectList { return &corev1.ServiceList{} }},
		{"load balancers", func() client.ObjectList { return &v1alpha1.LoadBalancerList{} }},
	} {
		for token, more := "", true; more; more = token != "" {
			page := all.page()
			err := t.live.List(ctx, page, client.Limit(pageSize), client.Continue(token))
			if err == nil {
				err = meta.EachListItem(page, func(object runtime.Object) error {
					if one := t.adopt(object); one != nil {
						held = append(held, *one)
					}
					return nil
				})
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all.of, err)
			}
			token = page.GetContinue()
		}
	}
	return held, nil
}

// adopt returns the addresses in an object's status, also those that another controller assigned; nil if
// it has none and is not and was not ours.
func (t initialSync) adopt(object runtime.Object) *adopted {
	var o owned
	serves := true
	switch object := object.(type) {
	case *v1alpha1.AssignedAddress:
		t.allocations.Observe(object.Name, object)
		return nil
	case *corev1.Service:
		if serves = t.isOurs(object); !serves && !isMarked(object) {
			if !isForeign(object) {
				return nil
			}
			return t.foreign(object)
		}
		o = service{object}
	case *v1alpha1.LoadBalancer:
		o = balancer{object}
	}
	held := &adopted{addressRequest: o.request(), Addresses: o.shown()}
	if !serves {
		held.Families = nil // gets no address
	}
	if group := o.group(); group != "" { // a refused Service's isn't known
		t.groups.restore(held.Owner, group)
	}
	return held
}
