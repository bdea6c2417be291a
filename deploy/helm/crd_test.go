// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/test/golden"
)

const schemaFile = chart + "/values.schema.json"

// definition has the checked fields of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Names    struct{ Kind, Plural string }
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema struct {
					Properties struct{ Spec map[string]any }
				} `yaml:"openAPIV3Schema"`
			}
		}
	}
}

// definitions returns the chart's definitions.
func definitions(t *testing.T) []definition {
	t.Helper()
	paths, err := filepath.Glob(chart + "/crds/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d definitions, error %v", len(paths), err)
	}
	all := make([]definition, len(paths))
	for i, path := range paths {
		if err := yaml.Unmarshal(readFile(t, path), &all[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return all
}

// strict converts an OpenAPI schema of a definition into a JSON schema without unknown
// fields, descriptions and extensions of Kubernetes.
func strict(schema map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range schema {
		switch value := value.(type) {
		case map[string]any:
			if key == "properties" {
				properties := map[string]any{}
				for name, property := range value {
					properties[name] = strict(property.(map[string]any))
				}
				out[key], out["additionalProperties"] = properties, false
				continue
			}
			out[key] = strict(value)
		default:
			if key != "description" && key != "format" && key != "default" && !strings.HasPrefix(key, "x-kubernetes-") {
				out[key] = value
			}
		}
	}
	return out
}

// Lists of objects in values have a name and the fields of the kinds' specs.
func TestSchemaHasTheKinds(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(readFile(t, schemaFile), &schema); err != nil {
		t.Fatal(err)
	}
	defs, _ := schema["$defs"].(map[string]any)
	for _, d := range definitions(t) {
		key := map[string]string{"AddressPool": "addressPool", "BGPPeer": "bgpPeer", "LoadBalancerGroup": "loadBalancerGroup"}[d.Spec.Names.Kind]
		if key == "" {
			continue
		}
		element := strict(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec)
		properties, _ := element["properties"].(map[string]any)
		properties["name"] = map[string]any{"$ref": "#/$defs/name"}
		required, _ := element["required"].([]any)
		element["required"] = append([]any{"name"}, required...)
		defs[key] = element
	}
	var now bytes.Buffer
	encoder := json.NewEncoder(&now)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	golden.File(t, schemaFile, now.String())
}
