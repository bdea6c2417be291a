// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube/annotation"
)

// ours reports whether a Service is Fairlead's: of type LoadBalancer, and of one of
// Fairlead's classes or, where that is the default, of none.
func (o *office) ours(svc *corev1.Service) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if svc.Spec.LoadBalancerClass == nil {
		return o.options.DefaultClass
	}
	return strings.HasPrefix(*svc.Spec.LoadBalancerClass, v1alpha1.Group+"/")
}

// wasOurs reports whether a Service has something that only a controller writes.
func wasOurs(svc *corev1.Service) bool {
	return svc.Annotations[v1alpha1.AnnotationGroup] != "" || meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated) != nil
}

// serviceWish returns what a Service asks for. unfit says that it can't be given any
// address, as what it says about them can't be understood; notAccepted what else
// can't be, and unfit too.
func serviceWish(svc *corev1.Service) (w ledger.Wish, unfit, notAccepted error) {
	settings, err := annotation.Parse(svc)
	w = ledger.Wish{
		Owner:   ownerOf(kindService, svc),
		Created: svc.CreationTimestamp.Time,
		Labels:  maps.Clone(svc.Labels), // the object is written to, the wish is read by others
		Partial: svc.Spec.IPFamilyPolicy != nil && *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack,
		Wanted:  settings.Addresses,
		Pool:    settings.Pool,
		Sharing: alloc.Sharing{Key: settings.SharingKey, Mode: string(svc.Spec.ExternalTrafficPolicy)},
	}
	if svc.Spec.LoadBalancerClass != nil {
		w.Class = *svc.Spec.LoadBalancerClass
	}
	for _, family := range svc.Spec.IPFamilies {
		w.Families = append(w.Families, familyOf(family))
	}
	for _, port := range svc.Spec.Ports {
		p, known := protocolOf(port.Protocol)
		if !known {
			err = errors.Join(err, fmt.Errorf("port %d: %s is not served: want TCP or UDP", port.Port, port.Protocol))
			continue
		}
		w.Ports = append(w.Ports, alloc.Port{Number: uint16(port.Port), Protocol: p})
	}
	// Where it isn't understood which address is wanted, to give another one would be
	// worse than to give none.
	addressing := about(err, v1alpha1.AnnotationAddresses, v1alpha1.AnnotationAddressPool, v1alpha1.AnnotationSharingKey, "spec.loadBalancerIP")
	if addressing != nil {
		w.Families, w.SameKey = nil, about(err, v1alpha1.AnnotationSharingKey) != nil
		return w, &unfitError{reasonBadAnnotation, addressing}, err
	}
	return w, nil, err
}

// about returns the first error about one of some annotations, nil if there is none.
func about(err error, fields ...string) error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		if bad, is := errors.AsType[*annotation.Error](err); is && slices.Contains(fields, bad.Field) {
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

func protocolOf(protocol corev1.Protocol) (p lb.Protocol, known bool) {
	switch protocol {
	case corev1.ProtocolTCP, "":
		return lb.TCP, true
	case corev1.ProtocolUDP:
		return lb.UDP, true
	default:
		return 0, false
	}
}

// serviceAddresses returns those in a Service's status. Others than addresses
// are left out: Fairlead writes none.
func serviceAddresses(svc *corev1.Service) (shown []netip.Addr) {
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(ingress.IP); err == nil {
			shown = append(shown, a)
		}
	}
	return shown
}
