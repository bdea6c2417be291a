// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// Settings are the annotations of a Service.
type Settings struct {
	// Addresses are requested: at most one of each family, IPv4 first.
	Addresses []netip.Addr
	// Pool is the requested AddressPool; empty for any.
	Pool string
	// SharingKey is equal for Services that may share an address; empty for none.
	SharingKey string
	// Forward is the forwarding mode; 0 for that of the group.
	Forward lb.Forward
	Health  Health
	// Group is the LoadBalancerGroup that serves the Service; empty for none.
	Group string
}

// ParseAnnotations reads a Service's annotations and, without an annotation of
// addresses, its deprecated spec.loadBalancerIP. The error joins an lb.FieldError for each
// invalid one, which is ignored: its Path is the annotation's name, or "spec.loadBalancerIP".
func ParseAnnotations(svc *corev1.Service) (Settings, error) {
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

// Protocol translates a port's protocol, TCP by default; false if it is not served.
func Protocol(name corev1.Protocol) (p lb.Protocol, served bool) {
	switch name {
	case corev1.ProtocolTCP, "":
		return lb.TCP, true
	case corev1.ProtocolUDP:
		return lb.UDP, true
	default:
		return 0, false
	}
}

// reader reads annotations and collects errors.
type reader struct {
	annotations map[string]string
	errs        []error
}

func (r *reader) fail(field, format string, args ...any) {
	r.errs = append(r.errs, lb.FieldError{Path: field, Err: fmt.Errorf(format, args...)})
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
	var found []netip.Addr
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
		found = append(found, a)
	}
	slices.SortFunc(found, netip.Addr.Compare) // IPv4 first
	if n := len(found); n > 2 || n == 2 && found[0].Is4() == found[1].Is4() {
		r.fail(field, "two addresses of one family: want at most one of each")
		return nil
	}
	return found
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

// maxSharingKey is the maximum length of most names in Kubernetes.
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
		r.fail(v1alpha1.AnnotationForward, "unknown forwarding mode %q: want one of nat, dsr, l2dsr, ipip, gue", text)
		return 0
	}
	return f
}
