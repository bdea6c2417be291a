// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"fairlead.io/fairlead/api/v1alpha1"
)

// Files accept each number that the schema of the same declaration accepts.
func TestRanges(t *testing.T) {
	specs := map[string]any{
		"AddressPool": v1alpha1.AddressPoolSpec{}, "BGPPeer": v1alpha1.BGPPeerSpec{},
		"LoadBalancerGroup": v1alpha1.LoadBalancerGroupSpec{}, "LoadBalancer": v1alpha1.LoadBalancerSpec{},
	}
	seen := 0
	for _, k := range kinds() {
		ranges := map[string]string{}
		addRanges(ranges, "spec", reflect.TypeOf(specs[k.kind]))
		for path, s := range fields("spec", root(t, k)["properties"].(value)["spec"].(value)) {
			given := ranges[path]
			if given == "" {
				continue
			}
			seen++
			low, high, _ := strings.Cut(given, "-")
			least, err1 := strconv.ParseInt(low, 10, 64)
			most, err2 := strconv.ParseInt(high, 10, 64)
			if err1 != nil || err2 != nil || s["minimum"].(int64) < least || s["maximum"].(int64) > most {
				t.Errorf("%s %s: range %q, schema %v to %v", k.kind, path, given, s["minimum"], s["maximum"])
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d ranges, want at least 20", seen)
	}
}

// addRanges adds the tags "range" of a type's fields by their paths.
func addRanges(ranges map[string]string, path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.HealthCheck]().PkgPath() {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			ranges[path+"."+name] = f.Tag.Get("range")
			addRanges(ranges, path+"."+name, f.Type)
		}
	}
}
