// SPDX-License-Identifier: Apache-2.0

// Package annotation reads what Services say in Fairlead's annotations
// (api/v1alpha1/name.go).
//
// It stands before the Kubernetes source and the controller in the story of
// DESIGN.md §8: both have to understand a Service in the same way. It is pure.
package annotation

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// Settings are what a Service says. The zero value says nothing.
type Settings struct {
	// Addresses are wanted: at most one of each family, IPv4 first.
	Addresses []netip.Addr
	// Pool is the AddressPool from which addresses are wanted; empty for any.
	Pool string
	// SharingKey is equal for Services that may have one address; empty for none.
	SharingKey string
	// Forward is how packets are brought to endpoints; 0: as the group has it.
	Forward lb.Forward
	// Health is how endpoints are probed.
	Health Health
	// Group is the LoadBalancerGroup that serves the Service; empty while there is
	// none.
	Group string
}

// Error is one annotation that can't be understood.
type Error struct {
	// Field is the annotation's name, or "spec.loadBalancerIP".
	Field string
	Err   error
}

// Error names the annotation.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong, without the annotation's name.
func (e *Error) Unwrap() error { return e.Err }

// Parse reads a Service's annotations and, where no addresses are annotated, its
// deprecated spec.loadBalancerIP. The error joins one *Error for each that can't
// be understood; what that would have set is as if it had not been said.
func Parse(svc *corev1.Service) (Settings, error) {
	r := reader{annotations: svc.Annotations}
	s := Settings{
		Addresses:  r.addresses(svc.Spec.LoadBalancerIP),
		Pool:       r.name(v1alpha1.AnnotationAddressPool),
		SharingKey: r.sharingKey(),
		Forward:    r.forward(),
		Health:     r.health(),
		Group:      r.name(v1alpha1.AnnotationGroup),
	}
	return s, errors.Join(r.errs...)
}

// reader gathers what is wrong.
type reader struct {
	annotations map[string]string
	errs        []error
}

func (r *reader) fail(field, format string, args ...any) {
	r.errs = append(r.errs, &Error{Field: field, Err: fmt.Errorf(format, args...)})
}

func (r *reader) addresses(deprecated string) []netip.Addr {
	field := v1alpha1.AnnotationAddresses
	text, given := r.annotations[field]
	if !given && deprecated != "" {
		field, text, given = "spec.loadBalancerIP", deprecated, true
	}
	if !given {
		return nil
	}
	var four, six []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			r.fail(field, "bad address %q: want IPv4 or IPv6, separated by commas", strings.TrimSpace(part))
			return nil
		}
		if err := lb.CheckAddress(a); err != nil {
			r.fail(field, "%w", err)
			return nil
		}
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	if len(four) > 1 || len(six) > 1 {
		r.fail(field, "two addresses of one family: want at most one of each")
		return nil
	}
	return append(four, six...)
}

// name reads the name of a cluster-scoped object.
func (r *reader) name(field string) string {
	text := r.annotations[field]
	if text == "" {
		return ""
	}
	if wrong := validation.IsDNS1123Subdomain(text); len(wrong) > 0 {
		r.fail(field, "bad name %q: want lower-case letters, digits, dots and hyphens", text)
		return ""
	}
	return text
}

// maxSharingKey is that of a label's value and of most names.
const maxSharingKey = 253

func (r *reader) sharingKey() string {
	key := r.annotations[v1alpha1.AnnotationSharingKey]
	unfit := func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }
	if len(key) > maxSharingKey || strings.ContainsFunc(key, unfit) {
		r.fail(v1alpha1.AnnotationSharingKey, "bad key: want at most %d printable characters without spaces", maxSharingKey)
		return ""
	}
	return key
}

func (r *reader) forward() lb.Forward {
	text, given := r.annotations[v1alpha1.AnnotationForward]
	if !given {
		return 0
	}
	var f lb.Forward
	if err := f.UnmarshalText([]byte(text)); err != nil || f.Overlay() != lb.SegmentUnset {
		r.fail(v1alpha1.AnnotationForward, "unknown forwarding mode %q: want one of nat, dnat, l2dsr, ipip, gue", text)
		return 0
	}
	return f
}
