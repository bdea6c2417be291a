// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// schema is a JSON schema, or one of OpenAPI v2 or v3.
type schema = map[string]any

// reference is how definitions of an OpenAPI document name each other.
const reference = "#/definitions/"

// ofOpenAPI returns a schema for each kind of an OpenAPI v2 document, by its file's
// name. Each holds all definitions that it needs.
func ofOpenAPI(text []byte) (map[string]schema, error) {
	var document struct{ Definitions map[string]schema }
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	definitions := map[string]schema{}
	for name, d := range document.Definitions {
		definitions[name] = strict(d)
	}
	kinds := map[string]schema{}
	for name, d := range document.Definitions {
		// Definitions with several are not objects, but options of requests.
		is, _ := d["x-kubernetes-group-version-kind"].([]any)
		if len(is) != 1 {
			continue
		}
		gvk, _ := is[0].(schema)
		needed := map[string]schema{}
		collect(definitions, definitions[name], needed)
		kind := maps.Clone(definitions[name])
		kind["definitions"] = needed
		kinds[fileName(fmt.Sprint(gvk["group"]), fmt.Sprint(gvk["version"]), fmt.Sprint(gvk["kind"]))] = kind
	}
	return kinds, nil
}

// collect puts the schemas that a schema refers to into needed, recursively.
func collect(definitions map[string]schema, node any, needed map[string]schema) {
	switch node := node.(type) {
	case schema:
		for key, value := range node {
			text, isText := value.(string)
			name, isReference := strings.CutPrefix(text, reference)
			if key != "$ref" || !isText || !isReference {
				collect(definitions, value, needed)
				continue
			}
			if _, have := needed[name]; !have {
				needed[name] = definitions[name]
				collect(definitions, definitions[name], needed)
			}
		}
	case []any:
		for _, value := range node {
			collect(definitions, value, needed)
		}
	}
}

// quantities are written as numbers too.
const quantities = "Quantity is a fixed-point representation of a number."

// strict returns a schema that takes no unknown fields, and takes YAML's numbers
// where a text may be one.
func strict(s schema) schema {
	out := schema{}
	for key, value := range s {
		inner, isSchema := value.(schema)
		switch {
		case key == "properties" && isSchema:
			properties := schema{}
			for name, property := range inner {
				properties[name] = strict(property.(schema))
			}
			out[key] = properties
			if s["x-kubernetes-preserve-unknown-fields"] != true {
				out["additionalProperties"] = false
			}
		case isSchema:
			out[key] = strict(inner)
		default:
			out[key] = value
		}
	}
	described, _ := s["description"].(string)
	if s["format"] == "int-or-string" || strings.HasPrefix(described, quantities) {
		out["type"] = []string{"string", "number"}
	}
	delete(out, "description")
	delete(out, "format")
	return out
}
