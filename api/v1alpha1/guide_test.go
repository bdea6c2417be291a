// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"fairlead.io/fairlead/api/v1alpha1"
)

// The objects of the guide for users of MetalLB have no field that their kinds lack.
func TestMetalLBGuide(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "metallb.md"))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	objects := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for document := range strings.SplitSeq(block[1], "---\n") {
			if _, _, err := strict.Decode([]byte(document), nil, nil); err != nil {
				t.Errorf("%v\n%s", err, document)
			}
			objects++
		}
	}
	if objects == 0 {
		t.Error("no objects")
	}
}
