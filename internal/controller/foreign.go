// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
)

// DefaultClass says whether Fairlead serves Services of type LoadBalancer without a
// loadBalancerClass. It implements pflag.Value.
type DefaultClass string

// The values of DefaultClass.
const (
	// DefaultClassNever leaves them to others.
	DefaultClassNever DefaultClass = "false"
	// DefaultClassAuto serves them unless another controller does, and leaves statuses that
	// Fairlead hasn't written unchanged.
	DefaultClassAuto DefaultClass = "auto"
	// DefaultClassAlways serves Services without class like Services of its own class.
	DefaultClassAlways DefaultClass = "true"
)

// String returns the value as in flags.
func (d *DefaultClass) String() string { return string(*d) }

// Set reads a flag's value.
func (d *DefaultClass) Set(text string) error {
	switch v := DefaultClass(text); v {
	case DefaultClassNever, DefaultClassAuto, DefaultClassAlways:
		*d = v
		return nil
	}
	return fmt.Errorf("%q: want auto, true or false", text)
}

// Type returns the values for the usage text.
func (d *DefaultClass) Type() string { return "auto|true|false" }

// Reasons of the condition fairlead.io/Allocated before there are addresses, and after another
// controller wrote the status.
const (
	reasonClaimed         = "Claimed"
	reasonOtherController = "OtherController"
)

const (
	// claimDelay is the age at which a Service without class and status is claimed: other
	// controllers have begun with it by then.
	claimDelay = 5 * time.Second
	// otherControllerDelay is how long a Service is left to another controller that wrote to its
	// status, and the interval in which one removal of addresses is corrected.
	otherControllerDelay = 10 * time.Minute
	// cleanupFinalizer is set by controllers of cloud providers (k8s.io/cloud-provider) before
	// they create a load balancer.
	cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"
)

// isMarked reports whether this controller or an earlier one has claimed a Service, and not
// left it to another controller since.
func isMarked(svc *corev1.Service) bool {
	c := meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
	return c != nil && c.Reason != reasonOtherController
}

// isLeft reports whether a Service was left to another controller.
func isLeft(svc *corev1.Service) bool {
	c := meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
	return c != nil && c.Reason == reasonOtherController
}

// isClaimable reports whether a Service that isn't ours may become so by claim.
func (o *deps) isClaimable(svc *corev1.Service) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if svc.Spec.LoadBalancerClass == nil {
		return o.options.DefaultClass == DefaultClassAuto || o.options.DefaultClass == DefaultClassAlways
	}
	return strings.HasPrefix(*svc.Spec.LoadBalancerClass, v1alpha1.Group+"/")
}

// isForeign reports whether the data of another controller is in a Service.
func isForeign(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(len(svc.Status.LoadBalancer.Ingress) > 0 || slices.Contains(svc.Finalizers, cleanupFinalizer))
}

// isAdoptable reports whether a Service may become ours with the addresses in its status, if
// pools contain them.
func (o *deps) isAdoptable(svc *corev1.Service) bool {
	onlyAddresses := !slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		_, err := netip.ParseAddr(i.IP)
		return err != nil || i.Hostname != ""
	})
	return onlyAddresses && o.isClaimable(svc) && !isLeft(svc) && !slices.Contains(svc.Finalizers, cleanupFinalizer)
}

// adoptForeign takes over the addresses in the status of a claimable Service if pools that it
// may use contain them and no other owner has them. Otherwise no owner gets them.
func (r serviceReconciler) adoptForeign(svc *corev1.Service) bool {
	held := adopted{addressRequest: service{svc}.request(), Addresses: service{svc}.shown(), Foreign: true, Claimable: r.isAdoptable(svc)}
	if !r.allocations.AdoptForeign(held) {
		return false
	}
	r.written.set(held.Owner, held.Addresses)
	r.enqueueCounts()
	return true
}

// claim decides whether a Service without our mark becomes ours. It does if the addresses in its
// status are ours to assign, or if it has none and nothing shows another controller that
// serves Services without class. The first write marks the Service, and adds no address: that
// fails if another controller writes first.
func (r serviceReconciler) claim(ctx context.Context, svc *corev1.Service) (reconcile.Result, error) {
	owner := ownerOf(kindService, svc)
	if !r.allocations.HasNamespace(owner.Namespace) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	if isForeign(svc) {
		if r.adoptForeign(svc) {
			return r.serve(ctx, svc)
		}
		return reconcile.Result{}, nil
	}
	known := r.forgetForeign(ctx, owner)
	if !r.isClaimable(svc) {
		return reconcile.Result{}, nil
	}
	c := meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
	switch {
	case known && c != nil: // the status was left, and is empty from now on
		base := svc.DeepCopy()
		c.LastTransitionTime = metav1.NewTime(time.Now())
		_, err := r.patchStatus(ctx, svc, base)
		return reconcile.Result{RequeueAfter: otherControllerDelay}, err
	case known: // the other controller may be about to write another address
		return reconcile.Result{RequeueAfter: claimDelay}, nil
	}
	var wait time.Duration
	if c != nil {
		wait = otherControllerDelay - time.Since(c.LastTransitionTime.Time)
	} else {
		if other, serves := r.allocations.OtherController(); serves {
			r.log.Info("another controller serves Services without class, so they are left to it", "service", other, "left", owner)
			return reconcile.Result{}, nil
		}
		wait = claimDelay - time.Since(svc.CreationTimestamp.Time)
	}
	if wait > 0 && wait <= otherControllerDelay { // longer if clocks differ
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	base := svc.DeepCopy()
	set(&svc.Status.Conditions, condition(v1alpha1.ConditionServiceAllocated, false, reasonClaimed, ""))
	_, err := r.patchStatus(ctx, svc, base)
	return reconcile.Result{}, err
}

// forgetForeign records that a Service has no data of another controller any more, and reports
// whether it had. Services that were left to that one may be claimed now.
func (r serviceReconciler) forgetForeign(ctx context.Context, owner alloc.Owner) bool {
	known, last := r.allocations.ForgetForeign(owner)
	if last {
		r.enqueueClaimable(ctx)
	}
	return known
}

// enqueueClaimable triggers the reconciliation of Services that may be claimed.
func (o *deps) enqueueClaimable(ctx context.Context) {
	var all corev1.ServiceList
	if err := o.List(ctx, &all); err != nil {
		o.log.Warn("Services that may be claimed are unknown", "error", err)
		return
	}
	for i := range all.Items {
		if svc := &all.Items[i]; o.isClaimable(svc) && !isMarked(svc) {
			o.enqueue(ownerOf(kindService, svc))
		}
	}
}

// yield leaves a Service to another controller that has changed this controller's status addresses,
// so that two controllers never write in turns. Addresses that are missing are added again once. It
// reports whether it has left the Service.
func (r serviceReconciler) yield(ctx context.Context, svc *corev1.Service) (bool, error) {
	owner := ownerOf(kindService, svc)
	listed := r.allocations.Listed(owner)
	if !r.written.differs(owner, svc, listed) {
		return false, nil
	}
	var now corev1.Service // the cache may be behind this controller's own writes
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(svc), &now); err != nil {
		return false, err
	}
	if !r.written.differs(owner, &now, listed) {
		return false, nil
	}
	foreign := slices.DeleteFunc(slices.Clone(now.Status.LoadBalancer.Ingress), func(i corev1.LoadBalancerIngress) bool {
		return r.written.has(owner, i, listed)
	})
	what := "removed the addresses"
	if len(foreign) > 0 {
		what = "wrote " + ingressText(foreign)
	} else if r.written.correct(owner, service{&now}.shown()) {
		return false, nil
	}
	base := now.DeepCopy()
	before := slices.Clone(now.Status.Conditions)
	now.Status.LoadBalancer.Ingress = foreign
	c := condition(v1alpha1.ConditionServiceAllocated, false, reasonOtherController,
		"another controller "+what+": not served, so that two controllers don't overwrite each other")
	c.LastTransitionTime = metav1.NewTime(time.Now()) // also if it was false before: claim waits from now
	set(&now.Status.Conditions, c)
	meta.RemoveStatusCondition(&now.Status.Conditions, v1alpha1.ConditionServiceAccepted)
	meta.RemoveStatusCondition(&now.Status.Conditions, v1alpha1.ConditionServiceServed)
	removeFindings(&now.Status.Conditions, true)
	if _, err := r.patchStatus(ctx, &now, base); err != nil {
		return true, err
	}
	r.recordEvents(&now, before, []metav1.Condition{c})
	if err := r.release(ctx, owner); err != nil {
		return true, err
	}
	if len(foreign) > 0 {
		r.adoptForeign(&now) // reserves the addresses: it was left
	}
	return true, nil
}

// ingressText lists ingress points.
func ingressText(points []corev1.LoadBalancerIngress) string {
	var texts []string
	for _, i := range points {
		texts = append(texts, i.IP+i.Hostname)
	}
	return strings.Join(texts, ", ")
}

// writtenStatuses has the addresses that this controller wrote into the statuses of Services,
// or found there when it took them over.
type writtenStatuses struct {
	mu     sync.Mutex
	owners map[alloc.Owner]*writtenStatus
}

type writtenStatus struct {
	// last are the addresses of the last write, attempted the addresses of later writes that failed
	// or got no response: any of these may be in the status.
	last      []netip.Addr
	attempted [][]netip.Addr
	// corrected is when addresses were added again that another controller had removed.
	corrected time.Time
}

func (w *writtenStatuses) set(owner alloc.Owner, addresses []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.owners[owner]
	if s == nil {
		s = &writtenStatus{}
		w.owners[owner] = s
	}
	s.last, s.attempted = addresses, nil
}

// attempt records addresses that are about to be written.
func (w *writtenStatuses) attempt(owner alloc.Owner, addresses []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.owners[owner]; s != nil && !s.shows(addresses) {
		s.attempted = append(s.attempted, addresses)
	}
}

// shows reports whether a status may show these addresses.
func (s *writtenStatus) shows(addresses []netip.Addr) bool {
	return slices.Equal(addresses, s.last) || slices.ContainsFunc(s.attempted, func(a []netip.Addr) bool { return slices.Equal(addresses, a) })
}

func (w *writtenStatuses) delete(owner alloc.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owners, owner)
}

// differs reports whether a Service's status shows other points than were written; a first look at a
// Service records its addresses. An earlier leader wrote addresses whose objects list the Service.
func (w *writtenStatuses) differs(owner alloc.Owner, svc *corev1.Service, listed []netip.Addr) bool {
	shown := service{svc}.shown()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.owners[owner]
	if s == nil {
		s = &writtenStatus{last: shown}
		w.owners[owner] = s
	}
	if len(shown) < len(svc.Status.LoadBalancer.Ingress) { // a host name
		return true
	}
	if !within(shown, s.last) && within(shown, listed) {
		s.last = shown
	}
	return !s.shows(shown)
}

// within reports whether some addresses are all among others.
func within(some, others []netip.Addr) bool {
	return !slices.ContainsFunc(some, func(a netip.Addr) bool { return !slices.Contains(others, a) })
}

// has reports whether an ingress point was written.
func (w *writtenStatuses) has(owner alloc.Owner, point corev1.LoadBalancerIngress, listed []netip.Addr) bool {
	a, err := netip.ParseAddr(point.IP)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.owners[owner]
	return err == nil && s != nil && (slices.Contains(s.last, a) || slices.Contains(listed, a) || slices.Contains(slices.Concat(s.attempted...), a))
}

// correct reports whether missing addresses may be added again, and records that a status shows
// these ones.
func (w *writtenStatuses) correct(owner alloc.Owner, shown []netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.owners[owner]
	if s == nil || time.Since(s.corrected) < otherControllerDelay {
		return false
	}
	s.corrected, s.last, s.attempted = time.Now(), shown, nil
	return true
}
