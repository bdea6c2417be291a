// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
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
	"fairlead.io/fairlead/internal/lb"
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

// Reasons of the condition fairlead.io/Allocated before there are addresses, after another controller
// wrote the status, while another controller is seen, and if a status's addresses can't be taken over.
const (
	reasonClaimed             = "Claimed"
	reasonOtherController     = "OtherController"
	reasonOtherControllerSeen = "OtherControllerSeen"
	reasonNotTakenOver        = "NotTakenOver"
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
	return c != nil && c.Reason != reasonOtherController && !isWaiting(c)
}

// isLeft reports whether a Service was left to another controller.
func isLeft(svc *corev1.Service) bool {
	c := meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
	return c != nil && c.Reason == reasonOtherController
}

// isWaiting reports whether a condition says why a Service isn't claimed or taken over yet.
func isWaiting(c *metav1.Condition) bool {
	return c != nil && (c.Reason == reasonOtherControllerSeen || c.Reason == reasonNotTakenOver)
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

// isForeign reports whether another controller has written the status of a Service that isn't ours.
func isForeign(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && len(svc.Status.LoadBalancer.Ingress) > 0
}

// foreign returns a foreign Service with the addresses in its status.
func (o *deps) foreign(svc *corev1.Service) *adopted {
	named := slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		_, err := netip.ParseAddr(i.IP)
		return err != nil || i.Hostname != ""
	})
	return &adopted{
		addressRequest: service{svc}.request(), Addresses: service{svc}.shown(), Foreign: true,
		Named: named, Claimable: !named && o.isClaimable(svc) && !isLeft(svc), Refused: ofCloud(svc),
	}
}

// ofCloud returns an error for a Service without class and with the finalizer of a cloud provider's
// controller. Authors of Services may write finalizers, so it has a meaning for that Service only.
func ofCloud(svc *corev1.Service) error {
	if svc.Spec.LoadBalancerClass != nil || !slices.Contains(svc.Finalizers, cleanupFinalizer) {
		return nil
	}
	return errors.New("another controller serves this Service by its finalizer " + cleanupFinalizer +
		": remove the finalizer if that controller was removed")
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
		held := r.foreign(svc)
		ours, why := r.allocations.AdoptForeign(*held)
		if !ours {
			return reconcile.Result{}, r.explain(ctx, svc, reasonNotTakenOver, why)
		}
		r.written.set(owner, held.Addresses)
		r.enqueueCounts()
		return r.serve(ctx, svc)
	}
	known := r.allocations.ForgetForeign(owner)
	if !r.isClaimable(svc) {
		return reconcile.Result{}, r.explain(ctx, svc, "", nil)
	}
	switch {
	case known && isLeft(svc): // the status was left, and is empty from now on
		base := svc.DeepCopy()
		c := meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
		c.LastTransitionTime = metav1.NewTime(time.Now())
		_, err := r.patchStatus(ctx, svc, base)
		return reconcile.Result{RequeueAfter: otherControllerDelay}, err
	case known: // the other controller may be about to write another address
		return reconcile.Result{RequeueAfter: claimDelay}, nil
	}
	wait, why := r.unclaimed(svc)
	if wait > 0 && wait <= otherControllerDelay { // longer if clocks differ
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if why != nil {
		return reconcile.Result{}, r.explain(ctx, svc, reasonOtherControllerSeen, why)
	}
	base := svc.DeepCopy()
	set(&svc.Status.Conditions, condition(v1alpha1.ConditionServiceAllocated, false, reasonClaimed, ""))
	_, err := r.patchStatus(ctx, svc, base)
	return reconcile.Result{}, err
}

// unclaimed says for how long a claimable Service with an empty status is left to other controllers, and
// why it isn't claimed then.
func (r serviceReconciler) unclaimed(svc *corev1.Service) (wait time.Duration, why error) {
	why = ofCloud(svc)
	if isLeft(svc) {
		c := meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
		return otherControllerDelay - time.Since(c.LastTransitionTime.Time), why
	}
	age := time.Since(svc.CreationTimestamp.Time)
	if why != nil {
		return otherControllerDelay - age, why // a cloud's balancer takes some minutes
	}
	other, serves := r.allocations.OtherController(svc.Namespace)
	switch {
	case serves && other.Namespace == svc.Namespace:
		why = fmt.Errorf("another controller serves Services without class, by the status of Service %s: if it was removed, "+
			"remove that Service's finalizer and status; or set defaultClass of the chart to true, or create this Service with "+
			"loadBalancerClass %s", other.Name, v1alpha1.LoadBalancerClass)
	case serves:
		r.log.Info("another controller serves Services without class, so they are left to it",
			"service", other, "left", ownerOf(kindService, svc))
		why = fmt.Errorf("another controller serves Services without class, by a status in another namespace: if it was "+
			"removed, an administrator can remove its finalizers and statuses (the log of Fairlead's controller names one), or "+
			"set defaultClass of the chart to true; or create this Service with loadBalancerClass %s", v1alpha1.LoadBalancerClass)
	}
	return claimDelay - age, why
}

// explain sets the condition of a Service that isn't ours to the reason why it waits, and records an
// Event. Without an error it doesn't wait.
func (r serviceReconciler) explain(ctx context.Context, svc *corev1.Service, reason string, why error) error {
	r.allocations.SetLeft(ownerOf(kindService, svc), why != nil)
	if why == nil && !isWaiting(meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)) {
		return nil
	}
	before, base := slices.Clone(svc.Status.Conditions), svc.DeepCopy()
	if why == nil {
		meta.RemoveStatusCondition(&svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
		_, err := r.patchStatus(ctx, svc, base)
		return err
	}
	c := condition(v1alpha1.ConditionServiceAllocated, false, reason, why.Error())
	set(&svc.Status.Conditions, c)
	return r.publish(ctx, svc, base, before, []metav1.Condition{c})
}

// yield leaves a Service to another controller that has changed this controller's status addresses,
// so that two controllers never write in turns. Addresses that are missing are added again once. It
// reports whether it has left the Service.
func (r serviceReconciler) yield(ctx context.Context, svc *corev1.Service) (bool, error) {
	owner := ownerOf(kindService, svc)
	listed := r.allocations.objects.of(owner, lb.Segment{})
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
		_, _ = r.allocations.AdoptForeign(*r.foreign(&now)) // reserves the addresses: it was left
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
