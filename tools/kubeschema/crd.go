// SPDX-License-Identifier: Apache-2.0

package main

// definition has the needed fields of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Schema struct {
				OpenAPIV3Schema schema `yaml:"openAPIV3Schema"`
			}
		}
	}
}

// add puts the kind's schemas among others. No schema checks metadata that the API
// server writes.
func (d definition) add(schemas map[string]schema) {
	for _, v := range d.Spec.Versions {
		schemas[fileName(d.Spec.Group, v.Name, d.Spec.Names.Kind)] = strict(v.Schema.OpenAPIV3Schema)
	}
}
