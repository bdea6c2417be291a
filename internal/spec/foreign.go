// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// ErrUnknown is the error of an annotation of Fairlead's that doesn't exist.
var ErrUnknown = errors.New("unknown")

// sourceRanges is the field of Services that foreign annotations stand for.
const sourceRanges = "spec.loadBalancerSourceRanges"

// ForeignAnnotation is another load balancer's annotation of Services about addresses or clients.
type ForeignAnnotation struct {
	Name string
	// Own is the annotation or field of the same purpose, empty for none. If that is given, it counts alone.
	Own string
	// Read says that the annotation is read as Own. Others have another meaning: a condition names them.
	Read bool
	// Unless is the value that requests nothing.
	Unless string
}

// ForeignAnnotations are all that are known, those that are read first.
var ForeignAnnotations = []ForeignAnnotation{
	{Name: "metallb.io/address-pool", Own: v1alpha1.AnnotationAddressPool, Read: true},
	{Name: "metallb.universe.tf/address-pool", Own: v1alpha1.AnnotationAddressPool, Read: true},
	{Name: "metallb.io/loadBalancerIPs", Own: v1alpha1.AnnotationAddresses, Read: true},
	{Name: "metallb.universe.tf/loadBalancerIPs", Own: v1alpha1.AnnotationAddresses, Read: true},
	{Name: "metallb.io/allow-shared-ip", Own: v1alpha1.AnnotationSharingKey, Read: true},
	{Name: "metallb.universe.tf/allow-shared-ip", Own: v1alpha1.AnnotationSharingKey, Read: true},
	{Name: "kube-vip.io/loadbalancerIPs", Own: v1alpha1.AnnotationAddresses, Read: true},
	{Name: "lbipam.cilium.io/ips", Own: v1alpha1.AnnotationAddresses, Read: true},
	{Name: "io.cilium/lb-ipam-ips", Own: v1alpha1.AnnotationAddresses, Read: true},
	{Name: "lbipam.cilium.io/sharing-key", Own: v1alpha1.AnnotationSharingKey, Read: true},
	{Name: "io.cilium/lb-ipam-sharing-key", Own: v1alpha1.AnnotationSharingKey, Read: true},
	{Name: "purelb.io/addresses", Own: v1alpha1.AnnotationAddresses, Read: true},
	{Name: "purelb.io/allow-shared-ip", Own: v1alpha1.AnnotationSharingKey, Read: true},
	{Name: "service.beta.kubernetes.io/load-balancer-source-ranges", Own: sourceRanges, Read: true},
	{Name: "service.beta.kubernetes.io/azure-allowed-ip-ranges", Own: sourceRanges, Read: true},
	{Name: "service.beta.kubernetes.io/azure-allowed-service-tags", Own: sourceRanges},
	{Name: "lbipam.cilium.io/sharing-cross-namespace", Own: v1alpha1.AnnotationSharingKey},
	{Name: "io.cilium/lb-ipam-sharing-cross-namespace", Own: v1alpha1.AnnotationSharingKey},
	{Name: "purelb.io/service-group", Own: v1alpha1.AnnotationAddressPool},
	{Name: "eip.openelb.kubesphere.io/v1alpha2", Own: v1alpha1.AnnotationAddressPool},
	{Name: "service.beta.kubernetes.io/aws-load-balancer-internal", Own: v1alpha1.AnnotationAddressPool, Unless: "false"},
	{Name: "service.beta.kubernetes.io/aws-load-balancer-scheme", Own: v1alpha1.AnnotationAddressPool, Unless: "internet-facing"},
	{Name: "service.beta.kubernetes.io/azure-load-balancer-internal", Own: v1alpha1.AnnotationAddressPool, Unless: "false"},
	{Name: "service.beta.kubernetes.io/azure-load-balancer-ipv4", Own: v1alpha1.AnnotationAddresses},
	{Name: "service.beta.kubernetes.io/azure-load-balancer-ipv6", Own: v1alpha1.AnnotationAddresses},
	{Name: "service.beta.kubernetes.io/oci-load-balancer-internal", Own: v1alpha1.AnnotationAddressPool, Unless: "false"},
	{Name: "service.beta.kubernetes.io/openstack-internal-load-balancer", Own: v1alpha1.AnnotationAddressPool, Unless: "false"},
	{Name: "networking.gke.io/load-balancer-type", Own: v1alpha1.AnnotationAddressPool, Unless: "External"},
	{Name: "cloud.google.com/load-balancer-type", Own: v1alpha1.AnnotationAddressPool, Unless: "External"},
	{Name: "kube-router.io/service.advertise.loadbalancerip", Unless: "true"},
}

// HasMeaning reports whether an annotation of a Service is Fairlead's, or one of ForeignAnnotations.
func HasMeaning(name string) bool {
	return strings.HasPrefix(name, v1alpha1.Group+"/") ||
		slices.ContainsFunc(ForeignAnnotations, func(f ForeignAnnotation) bool { return f.Name == name })
}

// annotationOf returns the first annotation of a LoadBalancer that has a meaning for Services only.
func annotationOf(b *v1alpha1.LoadBalancer) (name string, is bool) {
	for _, name = range slices.Sorted(maps.Keys(b.Annotations)) {
		if HasMeaning(name) {
			return name, true
		}
	}
	return "", false
}

// readForeign adds the values of foreign annotations under the names of Fairlead's own, and returns
// from which each is. Two that differ are an error.
func (r *reader) readForeign(svc *corev1.Service) {
	r.annotations, r.origin = maps.Clone(svc.Annotations), map[string]string{}
	for _, f := range ForeignAnnotations {
		value := svc.Annotations[f.Name]
		if _, own := svc.Annotations[f.Own]; value == "" || own || !f.Read || f.Own == sourceRanges {
			continue
		}
		if _, twice := r.origin[f.Own]; twice && r.annotations[f.Own] != value {
			r.fail(f.Own, "differs from %s", f.Name)
			continue
		}
		r.annotations[f.Own], r.origin[f.Own] = value, f.Name
	}
}

// checkKnown fails for annotations of Fairlead's that don't exist, and for labels with the name of one
// that does.
func (r *reader) checkKnown(svc *corev1.Service) {
	for _, name := range slices.Sorted(maps.Keys(svc.Annotations)) {
		short, is := strings.CutPrefix(name, v1alpha1.Group+"/")
		if !is || slices.Contains(known, name) {
			continue
		}
		names := make([]string, len(known))
		for i := range known {
			names[i] = strings.TrimPrefix(known[i], v1alpha1.Group+"/")
		}
		near := "one of " + strings.Join(names, ", ")
		if one := Closest(short, names); one != "" {
			near = v1alpha1.Group + "/" + one
		}
		for _, f := range ForeignAnnotations {
			if strings.HasSuffix(f.Name, "/"+short) {
				near = f.Own
			}
		}
		r.fail(name, "%w: want %s", ErrUnknown, near)
	}
	for _, name := range known {
		if _, is := svc.Labels[name]; is {
			r.fail("metadata.labels", "%w: %s is an annotation", ErrUnknown, name)
		}
	}
}

// SourceRanges returns the ranges of clients that a Service admits, and where they are given: in its
// field, or else in an annotation. None admit all.
func SourceRanges(svc *corev1.Service) (ranges []string, field string) {
	if len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		return svc.Spec.LoadBalancerSourceRanges, sourceRanges
	}
	for _, f := range ForeignAnnotations {
		if text := strings.TrimSpace(svc.Annotations[f.Name]); f.Own == sourceRanges && f.Read && text != "" {
			return strings.Split(text, ","), f.Name
		}
	}
	return nil, sourceRanges
}

// Unread returns which foreign annotations of a Service aren't read, with their counterparts;
// empty if there are none.
func Unread(svc *corev1.Service) string {
	var texts []string
	for _, f := range ForeignAnnotations {
		value, given := svc.Annotations[f.Name]
		_, own := svc.Annotations[f.Own]
		own = own || f.Own == sourceRanges && len(svc.Spec.LoadBalancerSourceRanges) > 0
		if given && !own && !f.Read && value != f.Unless {
			text := f.Name + " is not read"
			if f.Own != "" {
				text += ": see " + f.Own
			}
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// Closest returns the name that has the smallest edit distance to the given one; empty if more than
// about a third of the letters differ.
func Closest(given string, names []string) string {
	const longest = 64 // longer than all names
	if len(given) > longest {
		return ""
	}
	best, least := "", len(given)/3+2
	for _, name := range names {
		if d := distance(strings.ToLower(given), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance returns the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
