// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.io/fairlead/api/v1alpha1"
)

// definition reads the CRD of a kind.
func definition(t *testing.T, k *samples) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(definitions, v1alpha1.Group+"_"+k.resource()+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: parse(t, string(text))}
}

// version is the only version of a CRD.
func version(t *testing.T, crd *unstructured.Unstructured) value {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("%s: versions %v, %v", crd.GetName(), versions, err)
	}
	return versions[0].(value)
}

// root is the schema of a kind's objects.
func root(t *testing.T, k *samples) value {
	t.Helper()
	s, _, err := unstructured.NestedMap(version(t, definition(t, k)), "schema", "openAPIV3Schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fields are all schemas below one that has a path, with theirs: ".spec.addresses[]"
// are the items of a list. Those inside of label selectors and conditions are
// Kubernetes' own and not among them.
func fields(path string, s value) iter.Seq2[string, value] {
	return func(yield func(string, value) bool) { walk(path, s, yield) }
}

func walk(path string, s value, yield func(string, value) bool) bool {
	if !yield(path, s) {
		return false
	}
	if items, ok := s["items"].(value); ok && !walk(path+"[]", items, yield) {
		return false
	}
	properties, _ := s["properties"].(value)
	if properties["matchExpressions"] != nil || properties["lastTransitionTime"] != nil {
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !walk(path+"."+name, properties[name].(value), yield) {
			return false
		}
	}
	return true
}

// Every kind has a CRD, and every CRD a kind: controller-gen takes none away.
func TestDefinitions(t *testing.T) {
	var want, got []string
	for _, k := range allKinds() {
		want = append(want, v1alpha1.Group+"_"+k.resource()+".yaml")
	}
	files, err := os.ReadDir(definitions)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got = append(got, f.Name())
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("CRDs are %v, want %v", got, want)
	}
}

// kubectl explain has something to say about every field.
func TestDescriptions(t *testing.T) {
	for _, k := range allKinds() {
		properties := root(t, k)["properties"].(value)
		for _, part := range []string{"spec", "status"} {
			schema, _ := properties[part].(value)
			for path, s := range fields(part, schema) {
				text, _ := s["description"].(string)
				if path != part && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(strings.TrimSpace(text), ".") {
					t.Errorf("%s %s: description %q: want sentences", k.kind, path, text)
				}
			}
		}
	}
}

// The samples leave nothing of a spec out.
func TestSamples(t *testing.T) {
	for _, k := range kinds() {
		spec := root(t, k)["properties"].(value)["spec"].(value)
		there := map[string]bool{}
		note(there, "spec", parse(t, k.full))
		for _, c := range k.accepted {
			note(there, "spec", parse(t, c.patch)) // fields that can't be combined with the full spec's
		}
		for path := range fields("spec", spec) {
			if !there[path] {
				t.Errorf("%s: no %s", k.kind, path)
			}
		}
	}
}

// note adds the paths of v and of its fields and elements.
func note(there map[string]bool, path string, v any) {
	there[path] = true
	switch v := v.(type) {
	case value:
		for name, inner := range v {
			note(there, path+"."+name, inner)
		}
	case []any:
		for _, inner := range v {
			note(there, path+"[]", inner)
		}
	}
}

// crds are where CRDs themselves are.
func crds() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// The API server serves all kinds, and has nothing against their schemas.
func (s *server) testDefinitions(t *testing.T) {
	for _, k := range allKinds() {
		crd, err := s.client.Resource(crds()).Get(t.Context(), k.resource()+"."+v1alpha1.Group, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		got := map[string]string{}
		for _, c := range conditions {
			got[fmt.Sprint(c.(value)["type"])] = fmt.Sprint(c.(value)["status"])
		}
		want := map[string]string{"NamesAccepted": "True", "Established": "True"}
		if !maps.Equal(got, want) {
			t.Errorf("%s: conditions %v, want %v", k.kind, got, want)
		}
	}
}
