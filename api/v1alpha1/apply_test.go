// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// testApply has several managers apply parts of one object (server-side apply):
// each keeps its own, identified by the keys of lists.
func (s *server) testApply(t *testing.T) {
	tests := map[string]struct {
		kind       string
		one, other string
		want       string
	}{
		"addresses": {kind: "AddressPool",
			one: `{addresses: [192.0.2.0/24]}`, other: `{addresses: ["2001:db8::/64"]}`,
			want: `{addresses: [192.0.2.0/24, "2001:db8::/64"], autoAssign: true}`},
		"communities": {kind: "AddressPool",
			one: `{addresses: [192.0.2.0/24], announce: {communities: ["1:1"]}}`, other: `{announce: {communities: ["1:2"]}, addresses: [192.0.2.0/24]}`,
			want: `{addresses: [192.0.2.0/24], announce: {communities: ["1:1", "1:2"]}, autoAssign: true}`},
		"classes": {kind: "LoadBalancerGroup",
			one: `{nodeSelector: {}, services: {classes: [fairlead.io/a]}}`, other: `{nodeSelector: {}, services: {classes: [fairlead.io/b]}}`,
			want: `{nodeSelector: {}, services: {classes: [fairlead.io/a, fairlead.io/b]}, size: 3, dataPlane: {forward: dsr}}`},
		"listeners and members": {kind: "LoadBalancer",
			one: `{forward: nat, listeners: [{name: web, port: 80, pool: a, sourceRanges: [10.0.0.0/8]}],
				pools: [{name: a, members: [{address: 10.0.0.1, port: 80}, {address: 10.0.0.2, port: 80, weight: 5}]}]}`,
			other: `{forward: nat, listeners: [{name: web, port: 80, pool: a, sourceRanges: [11.0.0.0/8]}, {name: alt, port: 81, pool: a}],
				pools: [{name: a, members: [{address: 10.0.0.2, port: 81}]}, {name: b}]}`,
			want: `{forward: nat,
				listeners: [{name: web, port: 80, pool: a, protocol: TCP, enabled: true, sourceRanges: [10.0.0.0/8, 11.0.0.0/8]}, {name: alt, port: 81, pool: a, protocol: TCP, enabled: true}],
				pools: [{name: a, sessionAffinity: None, members: [{address: 10.0.0.1, port: 80, weight: 1}, {address: 10.0.0.2, port: 80, weight: 5}, {address: 10.0.0.2, port: 81, weight: 1}]},
					{name: b, sessionAffinity: None}]}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := kindNamed(t, test.kind)
			objects, name := s.resource(k, v1alpha1.GroupVersion()), "apply-"+strings.ReplaceAll(name, " ", "-")
			for i, part := range []string{test.one, test.other} {
				object := k.object(v1alpha1.GroupVersion(), name, parse(t, part))
				if _, err := objects.Apply(t.Context(), name, object, metav1.ApplyOptions{FieldManager: fmt.Sprint("manager-", i)}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := objects.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got.Object["spec"].(value), parse(t, test.want))
		})
	}
}

// testLimits stores the largest objects that there can be: checking them isn't too
// dear for the API server.
func (s *server) testLimits(t *testing.T) {
	selector := `{matchExpressions: [` + numbered(1000, "{key: k%d, operator: NotIn, values: [a, b, c]}") + `]}`
	sources := make([]string, 64)
	for i := range sources {
		sources[i] = fmt.Sprintf(`{name: l%d, port: 80%02d, pool: p0, sourceRanges: [%s]}`, i, i, numbered(256, "10.%d.0.0/16"))
	}
	pools := make([]string, 16)
	for i := range pools {
		pools[i] = fmt.Sprintf(`{name: p%d, members: [%s]}`, i, numbered(256, fmt.Sprintf(`{address: "2001:db8:%x:ffff:ffff:ffff:ffff:%%x", port: 80}`, i)))
	}
	for kind, patch := range map[string]string{
		"AddressPool": `{addresses: [` + numbered(64, `"2001:db8:1234:%[1]x:1234:1234:1234:1-2001:db8:1234:%[1]x:ffff:ffff:ffff:ffff"`) + `],
			announce: {communities: [` + numbered(32, `"4294967295:4294967295:%d"`) + `]}, namespaceSelector: ` + selector + `, serviceSelector: ` + selector + `}`,
		"BGPPeer":           `{nodeSelector: ` + selector + `}`,
		"LoadBalancerGroup": `{nodeSelector: ` + selector + `, services: {selector: ` + selector + `, namespaceSelector: ` + selector + `, classes: [` + numbered(16, "fairlead.io/class-%d") + `]}}`,
		"LoadBalancer":      `{address: "2001:db8::1", listeners: [` + strings.Join(sources, ", ") + `], pools: [` + strings.Join(pools, ", ") + `]}`,
	} {
		k := kindNamed(t, kind)
		spec := merge(parse(t, k.minimal), parse(t, patch))
		if _, err := s.resource(k, v1alpha1.GroupVersion()).Create(t.Context(), k.object(v1alpha1.GroupVersion(), "largest", spec), metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %.500s", kind, err)
		}
	}
}
