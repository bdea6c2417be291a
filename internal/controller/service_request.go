// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

// isOurs reports whether a Service is of type LoadBalancer and of one of Fairlead's classes
// or, if Fairlead is the default, without class; with DefaultClassAuto only if it is marked. A
// Service that was left to another controller isn't ours.
func (o *deps) isOurs(svc *corev1.Service) bool {
	if !o.isClaimable(svc) || isLeft(svc) {
		return false
	}
	return svc.Spec.LoadBalancerClass != nil || o.options.DefaultClass == DefaultClassAlways || isMarked(svc)
}

// serviceRequest returns the request of a Service, and the errors of its annotations and
// ports. The request is invalid if annotations about addresses are.
func serviceRequest(svc *corev1.Service) (w addressRequest, notAccepted error) {
	settings, err := spec.ParseAnnotations(svc)
	w = addressRequest{
		Request: alloc.Request{
			Owner:   ownerOf(kindService, svc),
			Partial: svc.Spec.IPFamilyPolicy != nil && *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack,
			Wanted:  settings.Addresses,
			Pool:    settings.Pool,
			Sharing: alloc.Sharing{Key: settings.SharingKey, Mode: string(svc.Spec.ExternalTrafficPolicy)},
		},
		Version: svc.ResourceVersion,
		Created: svc.CreationTimestamp.Time,
		Labels:  maps.Clone(svc.Labels), // read concurrently, while the object is written
	}
	if svc.Spec.LoadBalancerClass != nil {
		w.Class = *svc.Spec.LoadBalancerClass
	}
	for _, family := range svc.Spec.IPFamilies {
		w.Families = append(w.Families, familyOf(family))
	}
	ports, tooMany := spec.Ports(svc)
	errs := []error{err, tooMany}
	for _, port := range ports {
		p, served := spec.Protocol(port.Protocol)
		if !served {
			errs = append(errs, refusal(reasonUnsupported, "port %d: %s is not served: want TCP or UDP", port.Port, port.Protocol))
			continue
		}
		w.Ports = append(w.Ports, alloc.Port{Number: uint16(port.Port), Protocol: p})
	}
	err = errors.Join(errs...)
	// An address other than the requested one would be worse than none.
	addressing := about(err, v1alpha1.AnnotationAddresses, v1alpha1.AnnotationAddressPool, v1alpha1.AnnotationSharingKey, "spec.loadBalancerIP", "spec.ports")
	if addressing != nil {
		w = w.reject(reasonOf(addressing), addressing)
		w.KeepKey = about(err, v1alpha1.AnnotationSharingKey) != nil
	}
	return w, err
}

// reasonOf returns the reason for the first error of annotations, or else of a field, or else of a port.
func reasonOf(err error) string {
	switch bad, is := errors.AsType[lb.FieldError](err); {
	case !is:
		return reasonUnsupported
	case strings.HasPrefix(bad.Path, "spec."):
		return reasonBadSpec
	}
	return reasonBadAnnotation
}

// about returns the first error of the given annotations, or of one that doesn't exist, as it may be
// misspelt; nil if there is none.
func about(err error, fields ...string) error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		if bad, is := errors.AsType[lb.FieldError](err); is && (slices.Contains(fields, bad.Path) || errors.Is(bad.Err, spec.ErrUnknown)) {
			return err
		}
		return nil
	}
	for _, one := range joined.Unwrap() {
		if found := about(one, fields...); found != nil {
			return found
		}
	}
	return nil
}

func familyOf(family corev1.IPFamily) alloc.Family {
	if family == corev1.IPv6Protocol {
		return alloc.IPv6
	}
	return alloc.IPv4
}

// service is a Service as an owner of addresses.
type service struct{ *corev1.Service }

func (s service) object() client.Object { return s.Service }

func (s service) request() addressRequest {
	req, _ := serviceRequest(s.Service)
	return req
}

func (s service) shown() (shown []netip.Addr) {
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(ingress.IP); err == nil {
			shown = append(shown, a)
		}
	}
	return shown
}

func (s service) hide(addresses []netip.Addr) {
	s.Status.LoadBalancer.Ingress = slices.DeleteFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		a, err := netip.ParseAddr(i.IP)
		return err != nil || slices.Contains(addresses, a)
	})
}

func (s service) conditions() (all *[]metav1.Condition, allocated string) {
	return &s.Status.Conditions, v1alpha1.ConditionServiceAllocated
}

func (s service) group() string { return spec.ServedBy(s.Service) }
