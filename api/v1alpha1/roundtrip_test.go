// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"fairlead.io/fairlead/api/v1alpha1"
)

// newObject returns an empty object of a kind, of Go's type.
func newObject(t testing.TB, kind string) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object, err := scheme.New(v1alpha1.GroupVersion().WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// testTyped takes every field of the specs through Go's types, the API server, and
// back.
func (s *server) testTyped(t *testing.T) {
	converter := runtime.DefaultUnstructuredConverter
	for _, k := range kinds() {
		stored := s.create(t, k, "typed").Object
		stored["status"] = parse(t, k.status())
		typed := newObject(t, k.kind)
		const strict = true
		if err := converter.FromUnstructuredWithValidation(stored, typed, strict); err != nil {
			t.Errorf("%s: %v", k.kind, err)
			continue
		}
		back, err := converter.ToUnstructured(typed)
		if err != nil {
			t.Errorf("%s: %v", k.kind, err)
			continue
		}
		same(t, back["spec"].(value), parse(t, k.full))
		same(t, back["status"].(value), parse(t, k.status()))
	}
}

// testReports takes every field of agents' reports through Go's types, the API server, and back.
func (s *server) testReports(t *testing.T) {
	converter := runtime.DefaultUnstructuredConverter
	for _, k := range reports() {
		object := k.object(v1alpha1.GroupVersion(), "columns", nil)
		delete(object.Object, "spec")
		object.Object["status"] = parse(t, k.status())
		stored, err := s.resource(k, v1alpha1.GroupVersion()).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatal(err)
		}
		typed := newObject(t, k.kind)
		const strict = true
		if err := converter.FromUnstructuredWithValidation(stored.Object, typed, strict); err != nil {
			t.Fatal(err)
		}
		back, err := converter.ToUnstructured(typed)
		if err != nil {
			t.Fatal(err)
		}
		same(t, back["status"].(value), parse(t, k.status()))
		for path := range fields("status", root(t, k)["properties"].(value)["status"].(value)) {
			there := map[string]bool{}
			if note(there, "status", parse(t, k.status())); !there[path] {
				t.Errorf("%s: the sample has no %s", k.kind, path)
			}
		}
	}
}

// fuzzer fills objects with anything that JSON can say.
func fuzzer(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(20).Funcs(
		func(to *metav1.Time, c randfill.Continue) { to.Time = time.Unix(c.Int63n(1<<33), 0).UTC() },
		func(to *metav1.TypeMeta, _ randfill.Continue) { *to = metav1.TypeMeta{} },
		func(to *metav1.FieldsV1, _ randfill.Continue) { to.SetRawString(`{}`) },
	)
}

// FuzzRoundTrip writes objects as JSON and reads them again, and copies them: the
// results are equal, and no field was unknown.
func FuzzRoundTrip(f *testing.F) {
	for seed := range int64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		for _, k := range allKinds() {
			for _, kind := range []string{k.kind, k.kind + "List"} {
				object, back := newObject(t, kind), newObject(t, kind)
				fuzzer(seed).Fill(object)
				text, err := json.Marshal(object)
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				reader := json.NewDecoder(bytes.NewReader(text))
				reader.DisallowUnknownFields()
				if err := reader.Decode(back); err != nil {
					t.Fatalf("%s: %v\n%s", kind, err, text)
				}
				if !equality.Semantic.DeepEqual(object, back) {
					again, _ := json.Marshal(back)
					t.Errorf("%s: wrote\n%s\nread\n%s", kind, text, again)
				}
				if c := object.DeepCopyObject(); !equality.Semantic.DeepEqual(object, c) {
					t.Errorf("%s: a copy differs", kind)
				}
			}
		}
	})
}
