// SPDX-License-Identifier: Apache-2.0

// Package schema completes and validates objects by the definition of their kind, as a Kubernetes
// API server does. The API server's own store calls it, which has no cluster.
package schema

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is the schema of the only version of a kind. It may be used concurrently.
type Schema struct {
	namespaced bool
	structure  *structural.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// New returns the schema in a CustomResourceDefinition, in YAML.
func New(definition []byte) (*Schema, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return nil, err
	}
	if n := len(crd.Spec.Versions); n != 1 || crd.Spec.Versions[0].Schema == nil {
		return nil, fmt.Errorf("%s: %d versions, or no schema", crd.Name, n)
	}
	var whole apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &whole, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", crd.Name, err)
	}
	structure, err := structural.NewStructural(&whole)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", crd.Name, err)
	}
	values, _, err := validation.NewSchemaValidator(&whole)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", crd.Name, err)
	}
	return &Schema{
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, structure: structure, values: values,
		rules: cel.NewValidator(structure, true, celconfig.PerCallLimit),
	}, nil
}

// Complete sets defaults, and removes unknown fields, whose paths it returns, sorted.
func (s *Schema) Complete(object *unstructured.Unstructured) (unknown []string) {
	defaulting.Default(object.Object, s.structure)
	unknown = pruning.PruneWithOptions(object.Object, s.structure, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, s.structure)
	return unknown
}

// Validate returns the errors of a complete object.
func (s *Schema) Validate(ctx context.Context, object *unstructured.Unstructured) field.ErrorList {
	all := metavalidation.ValidateObjectMetaAccessor(object, s.namespaced, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	all = append(all, validation.ValidateCustomResource(nil, object.Object, s.values)...)
	all = append(all, listtype.ValidateListSetsAndMaps(nil, s.structure, object.Object)...)
	if slices.ContainsFunc(all, precludesRules) {
		return all
	}
	broken, _ := s.rules.Validate(ctx, nil, s.structure, object.Object, nil, celconfig.RuntimeCELCostBudget)
	return append(all, broken...)
}

// precludesRules reports whether rules can't be checked because of an error.
func precludesRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	default:
		return false
	}
}
