// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has Fairlead's Kubernetes kinds and the annotations of Services.
// The controller reads the kinds to assign addresses and nodes, agents read them to
// configure their node. Schemas validate all that a schema can express, so that the
// API server rejects invalid objects.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.io
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../tools/go.mod controller-gen crd:maxDescLen=1024 paths=. output:crd:dir=../../deploy/helm/fairlead/crds
