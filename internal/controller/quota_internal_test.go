// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The number of usable endpoints in the cache is the controller's own: users' annotations don't
// count, and they can't have this one.
func TestUsableEndpoints(t *testing.T) {
	if len(validation.IsQualifiedName(usableEndpoints)) == 0 {
		t.Errorf("users may write the annotation %q", usableEndpoints)
	}
	es := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{discoveryv1.LabelServiceName: "web", "other": "label"},
		Annotations: map[string]string{"usable-endpoints": "-1000", "other": "annotation"},
	}}
	for range 2 {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}})
	}
	for range 2 { // caches may do it twice
		if _, err := slimSlice(es); err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{usableEndpoints: "2"}; !maps.Equal(es.Annotations, want) || len(es.Endpoints) > 0 || len(es.Labels) != 1 {
			t.Errorf("%v, want annotations %v, no endpoints and one label", es, want)
		}
	}
}
