// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// value is an object of JSON.
type value = map[string]any

// samples are objects of a kind, written as patches (RFC 7386) to the spec of a
// minimal one.
type samples struct {
	kind    string
	minimal string
	// full sets every field of the spec, but those that exclude others.
	full string
	// accepted objects, and the API server's defaults for them.
	accepted map[string]accepted
	// refused objects, and the API server's error: "field: words of the message".
	refused map[string]refusal
}

type accepted struct{ patch, defaults string }

type refusal struct{ patch, want string }

// kinds are the samples of the kinds that have a spec.
func kinds() []*samples {
	return []*samples{addressPools(), bgpPeers(), loadBalancerGroups(), loadBalancers()}
}

// allKinds are also those that only Fairlead writes.
func allKinds() []*samples {
	return append(append(kinds(), reports()...), &samples{kind: "AssignedAddress"})
}

// reports are the kinds that agents write, which have a status only.
func reports() []*samples {
	return []*samples{{kind: "BalancerNode"}, {kind: "BalancerNodeStatistics"}}
}

// resource is the kind's name in paths.
func (k *samples) resource() string {
	if name := strings.ToLower(k.kind); strings.HasSuffix(name, "ss") {
		return name + "es"
	}
	return strings.TrimSuffix(strings.ToLower(k.kind), "s") + "s"
}

// object is one of the kind.
func (k *samples) object(gv schema.GroupVersion, name string, spec value) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: value{
		"apiVersion": gv.String(), "kind": k.kind, "metadata": value{"name": name}, "spec": spec,
	}}
}

// parse reads YAML, in which whole numbers are int64, as in the API server's responses;
// empty text is an empty object.
func parse(t *testing.T, text string) value {
	t.Helper()
	v := value{}
	object, err := yaml.YAMLToJSON([]byte(text))
	if err == nil && text != "" {
		err = json.Unmarshal(object, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// merge applies a patch and leaves both as they are.
func merge(to, patch value) value {
	merged := maps.Clone(to)
	for name, v := range patch {
		before, inner := merged[name].(value)
		after, both := v.(value)
		switch {
		case v == nil:
			delete(merged, name)
		case inner && both:
			merged[name] = merge(before, after)
		default:
			merged[name] = v
		}
	}
	return merged
}

// same compares two values as JSON.
func same(t *testing.T, got, want value) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
