// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/deploy/helm"
	embedded "fairlead.io/fairlead/internal/apiserver/schema"
)

// The validation without a cluster accepts, completes and refuses the same samples as a real API
// server does (TestAPIServer), with the same fields and messages.
func TestWithoutCluster(t *testing.T) {
	for _, k := range kinds() {
		text, err := helm.Definition(k.resource())
		if err != nil {
			t.Fatal(err)
		}
		s, err := embedded.New(text)
		if err != nil {
			t.Fatal(err)
		}
		try := func(spec value) (value, []string, error) {
			object := k.object(v1alpha1.GroupVersion(), "sample", spec)
			if k.kind == "LoadBalancer" {
				object.SetNamespace("web")
			}
			unknown := s.Complete(object)
			if found := s.Validate(t.Context(), object); len(found) > 0 {
				return nil, nil, apierrors.NewInvalid(schema.GroupKind{Kind: k.kind}, "sample", found)
			}
			return object.Object["spec"].(value), unknown, nil
		}
		for name, c := range k.accepted {
			sent := merge(parse(t, k.minimal), parse(t, c.patch))
			want := merge(sent, parse(t, c.defaults))
			got, unknown, err := try(sent)
			if err != nil || len(unknown) > 0 {
				t.Errorf("%s/%s: %v, unknown fields %v", k.kind, name, err, unknown)
				continue
			}
			same(t, got, want)
		}
		for name, c := range k.refused {
			if _, _, err := try(merge(parse(t, k.minimal), parse(t, c.patch))); !refused(err, c.want) {
				t.Errorf("%s/%s: got %v, want %s", k.kind, name, err, c.want)
			}
		}
		if _, unknown, err := try(merge(parse(t, k.minimal), parse(t, "{surprise: 1}"))); err != nil || len(unknown) != 1 || unknown[0] != "spec.surprise" {
			t.Errorf("%s: unknown fields %v, error %v", k.kind, unknown, err)
		}
	}
}
