// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/test/golden"
)

// annotated is a Service with annotations.
func annotated(annotations map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
}

// Annotations of other load balancers are read if they mean the same.
func TestForeignAnnotations(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"MetalLB": {map[string]string{
			"metallb.universe.tf/address-pool": "internal", "metallb.io/loadBalancerIPs": "192.0.2.7,2001:db8::7", "metallb.universe.tf/allow-shared-ip": "key",
		}, `[192.0.2.7 2001:db8::7] "internal" "key" <nil>`},
		"kube-vip":           {map[string]string{"kube-vip.io/loadbalancerIPs": "192.0.2.7"}, `[192.0.2.7] "" "" <nil>`},
		"Cilium":             {map[string]string{"lbipam.cilium.io/ips": "192.0.2.7", "io.cilium/lb-ipam-sharing-key": "key"}, `[192.0.2.7] "" "key" <nil>`},
		"Fairlead's own too": {map[string]string{"fairlead.io/address-pool": "own", "metallb.io/address-pool": "other"}, `[] "own" "" <nil>`},
		"equal ones":         {map[string]string{"lbipam.cilium.io/sharing-key": "k", "metallb.io/allow-shared-ip": "k"}, `[] "" "k" <nil>`},
		"different ones": {map[string]string{"metallb.io/address-pool": "a", "metallb.universe.tf/address-pool": "b"},
			`[] "a" "" fairlead.io/address-pool: metallb.io/address-pool: differs from metallb.universe.tf/address-pool`},
		"a bad one": {map[string]string{"kube-vip.io/loadbalancerIPs": "0.0.0.0"},
			`[] "" "" fairlead.io/addresses: kube-vip.io/loadbalancerIPs: 0.0.0.0 is the unspecified address: want a unicast address`},
	} {
		s, err := spec.ParseAnnotations(annotated(test.annotations))
		if got := fmt.Sprintf("%v %q %q %v", s.Addresses, s.Pool, s.SharingKey, err); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// An annotation of Fairlead's that doesn't exist is an error, and so is a label in place of one.
func TestUnknownAnnotations(t *testing.T) {
	for name, want := range map[string]string{
		"fairlead.io/address":         "fairlead.io/address: unknown: want fairlead.io/addresses",
		"fairlead.io/Health-Check":    "fairlead.io/Health-Check: unknown: want fairlead.io/health-check",
		"fairlead.io/loadBalancerIPs": "fairlead.io/loadBalancerIPs: unknown: want fairlead.io/addresses",
		"fairlead.io/team":            "fairlead.io/team: unknown: want one of addresses, ",
	} {
		_, err := spec.ParseAnnotations(annotated(map[string]string{name: "x"}))
		if !errors.Is(err, spec.ErrUnknown) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"fairlead.io/addresses": "192.0.2.1", "fairlead.io/team": "x"}}}
	want := "metadata.labels: unknown: fairlead.io/addresses is an annotation"
	if _, err := spec.ParseAnnotations(svc); !errors.Is(err, spec.ErrUnknown) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// All annotations of the API exist.
func TestKnownAnnotations(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "api", "v1alpha1", "name.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for node := range ast.Preorder(file) {
		if constant, is := node.(*ast.ValueSpec); is && strings.HasPrefix(constant.Names[0].Name, "Annotation") {
			names++
			name := strings.Trim(constant.Values[0].(*ast.BasicLit).Value, `"`)
			if _, err := spec.ParseAnnotations(annotated(map[string]string{name: "1"})); errors.Is(err, spec.ErrUnknown) {
				t.Error(err)
			}
		}
	}
	if names < 17 {
		t.Errorf("%d annotations", names)
	}
}

// The field counts before annotations of source ranges. An annotation without any range denies all.
func TestSourceRanges(t *testing.T) {
	const name = "service.beta.kubernetes.io/load-balancer-source-ranges"
	svc := annotated(map[string]string{name: "10.0.0.0/8, 2001:db8::/32"})
	if ranges, field := spec.SourceRanges(svc); !slices.Equal(ranges, []string{"10.0.0.0/8", " 2001:db8::/32"}) || field != name {
		t.Errorf("%q of %s", ranges, field)
	}
	svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	if ranges, field := spec.SourceRanges(svc); !slices.Equal(ranges, []string{"192.0.2.0/24"}) || field != "spec.loadBalancerSourceRanges" {
		t.Errorf("%q of %s", ranges, field)
	}
	if ranges, _ := spec.SourceRanges(annotated(map[string]string{name: " "})); len(ranges) > 0 {
		t.Errorf("%q of an empty annotation", ranges)
	}
	if ranges, _ := spec.SourceRanges(annotated(map[string]string{name: "all"})); len(ranges) != 1 {
		t.Errorf("%q: none would admit all clients", ranges)
	}
}

// Annotations with another meaning are named, unless they request nothing or Fairlead's own is given.
func TestUnread(t *testing.T) {
	const internal = "service.beta.kubernetes.io/azure-load-balancer-internal"
	for _, test := range []struct {
		annotations map[string]string
		want        string
	}{
		{map[string]string{internal: "true", "example.com/x": "y"}, internal + " is not read: see fairlead.io/address-pool"},
		{map[string]string{internal: "false"}, ""},
		{map[string]string{internal: "true", "fairlead.io/address-pool": "internal"}, ""},
		{map[string]string{"kube-router.io/service.advertise.loadbalancerip": "false"}, "kube-router.io/service.advertise.loadbalancerip is not read"},
	} {
		if got := spec.Unread(annotated(test.annotations)); got != test.want {
			t.Errorf("%v: %q, want %q", test.annotations, got, test.want)
		}
	}
}

// A LoadBalancer's condition names an annotation that would be read of a Service.
func TestAnnotationOfLoadBalancer(t *testing.T) {
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"metallb.io/address-pool": "a", "example.com/x": "y"}}}
	d := spec.Decision{Address: netip.MustParseAddr("192.0.2.1"), Group: "main"}
	d.Write(b)
	want := "by group main; LoadBalancers have fields: the annotation metallb.io/address-pool is not read"
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Message != want {
		t.Errorf("condition %+v, want %s", c, want)
	}
}

// The reference has a table of foreign annotations.
func TestForeignTable(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| annotation | here |\n| --- | --- |\n")
	for _, f := range spec.ForeignAnnotations {
		read := "is not read"
		switch {
		case f.Read:
			read = "is read as `" + f.Own + "`"
		case f.Own != "":
			read += ": use `" + f.Own + "`"
		}
		if f.Unless != "" {
			read += fmt.Sprintf("; `%s` requests nothing", f.Unless)
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", f.Name, read)
	}
	golden.Parts(t, filepath.Join("..", "..", "docs", "reference", "kubernetes-api.md"),
		"<!-- foreign annotations, made by go test ./internal/spec -update -->\n", rows.String())
}
