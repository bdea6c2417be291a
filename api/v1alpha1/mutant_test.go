// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/cluster"
)

// mutantGroup begins the groups of kinds whose schemas are wrong.
const mutantGroup = "mutant"

// mutant is a schema that lacks one check or default, or has it looser by one.
type mutant struct {
	// change is a description of the mutation and its path.
	change string
	// field is in the errors of the samples that detect it.
	field string
	// rule: it is a rule (CEL) that is missing; others have no rules.
	rule   bool
	schema value
}

// mutants of a kind's spec, one for each thing that its schema says.
func mutants(t *testing.T, k *samples) []mutant {
	var all []mutant
	original := bare(root(t, k))
	spec := original["properties"].(value)["spec"].(value)
	for path, s := range fields("spec", spec) {
		for _, word := range slices.Sorted(maps.Keys(s)) {
			was := s[word]
			for change, field := range loosen(s, word) {
				all = append(all, mutant{path + ": " + word + change, path + field, word == "x-kubernetes-validations", possible(original, word)})
			}
			s[word] = was
		}
	}
	return all
}

// bare is a schema without its descriptions, so that many versions fit into a CRD.
func bare(s value) value {
	for _, inner := range fields("", s) {
		delete(inner, "description")
	}
	return s
}

// loosen changes a schema in every way in which one of its words can be loosened,
// which the caller undoes at the end. It yields each change, and the field below this
// one that is no longer checked.
func loosen(s value, word string) iter.Seq2[string, string] {
	return func(yield func(change, field string) bool) {
		switch was := s[word].(type) {
		case int64:
			s[word] = was + map[bool]int64{true: 1, false: -1}[strings.HasPrefix(word, "max")]
			yield(" by one", "")
		case []any:
			for i, gone := range was {
				s[word] = slices.Delete(slices.Clone(was), i, i+1)
				switch name, _ := gone.(string); {
				case word == "required" && !yield(" without "+name, "."+name):
				case word == "x-kubernetes-validations":
					field, _ := gone.(value)["fieldPath"].(string)
					yield(fmt.Sprintf("[%d] gone", i), field)
				}
			}
			if delete(s, word); word == "enum" {
				yield(" gone", "")
			}
		default:
			if was == "atomic" {
				return // no list type checks less
			}
			switch delete(s, word); word {
			case "pattern", "default":
				yield(" gone", "")
			case "x-kubernetes-list-type":
				s[word] = "atomic"
				yield(" gone", "[]")
			}
		}
	}
}

// possible copies a schema in which a word was changed, without parts for which the API
// server would refuse such a schema: lists without required keys, and rules that cost too
// much where there are no limits.
func possible(s value, word string) value {
	s = runtime.DeepCopyJSON(s)
	for _, inner := range fields("", s) {
		if word != "x-kubernetes-validations" {
			delete(inner, "x-kubernetes-validations")
		}
		if (word == "required" || word == "x-kubernetes-list-type") && inner["x-kubernetes-list-type"] == "map" {
			delete(inner, "x-kubernetes-list-type")
			delete(inner, "x-kubernetes-list-map-keys")
		}
		if inner["x-kubernetes-list-type"] == "atomic" {
			delete(inner, "x-kubernetes-list-map-keys")
		}
	}
	return s
}

// testMutants shows that the samples would notice if any one check or default were
// missing: each mutant is a version of its kind in which one of them is.
func (s *server) testMutants(t *testing.T) {
	const versions = 20 // of a CRD, which etcd has to be able to hold
	for _, k := range kinds() {
		count := 0
		for all := range slices.Chunk(mutants(t, k), versions) {
			group := fmt.Sprintf("%s-%d.%s", mutantGroup, count, v1alpha1.Group)
			s.serve(t, k, group, all)
			for i, m := range all {
				if gv := (schema.GroupVersion{Group: group, Version: mutantVersion(i)}); !s.noticed(t, k, gv, m) {
					t.Errorf("%s: no sample notices %s", k.kind, m.change)
				}
			}
			count += len(all)
		}
		t.Logf("%s: %d mutants", k.kind, count)
	}
}

func mutantVersion(i int) string { return fmt.Sprintf("v%d", i+1) }

// serve defines a kind whose versions are the mutants, and waits until it is there.
// Objects would be stored in another version, which has no defaults as they would
// add to a mutant's.
func (s *server) serve(t *testing.T, k *samples, group string, all []mutant) {
	t.Helper()
	crd := definition(t, k)
	crd.SetName(k.resource() + "." + group)
	stored := version(t, crd)
	stored["schema"] = value{"openAPIV3Schema": value{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	versions := []any{stored}
	for i, m := range all {
		v := maps.Clone(stored)
		v["name"], v["storage"] = mutantVersion(i), false
		v["schema"] = value{"openAPIV3Schema": m.schema}
		versions = append(versions, v)
	}
	spec := crd.Object["spec"].(value)
	spec["group"], spec["versions"] = group, versions
	if _, err := s.client.Resource(crds()).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	last := schema.GroupVersion{Group: group, Version: mutantVersion(len(all) - 1)}
	cluster.Await(t, "mutants of "+k.kind, func() error {
		_, err := s.resource(k, last).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// rules are the messages of a kind's rules.
func rules(t *testing.T, k *samples) string {
	var all strings.Builder
	for _, s := range fields("", root(t, k)) {
		rules, _ := s["x-kubernetes-validations"].([]any)
		for _, r := range rules {
			fmt.Fprintln(&all, r.(value)["message"])
		}
	}
	return all.String()
}

// index is a place in a list.
var index = regexp.MustCompile(`\[\d+\]`)

// noticed reports whether any sample that is about the mutant's field is taken
// otherwise than it should.
func (s *server) noticed(t *testing.T, k *samples, gv schema.GroupVersion, m mutant) bool {
	minimal, messages := parse(t, k.minimal), rules(t, k)
	for _, c := range k.refused {
		field, words, _ := strings.Cut(c.want, ": ")
		if index.ReplaceAllString(field, "[]") != m.field || strings.Contains(messages, words) != m.rule {
			continue
		}
		_, err := s.try(t, k, gv, merge(minimal, parse(t, c.patch)))
		if apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if !refused(err, c.want) {
			return true
		}
	}
	for _, c := range k.accepted {
		sent := merge(minimal, parse(t, c.patch))
		got, err := s.try(t, k, gv, sent)
		if err == nil && !reflect.DeepEqual(got, merge(sent, parse(t, c.defaults))) {
			return true
		}
	}
	return false
}
