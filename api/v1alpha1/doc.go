// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is Fairlead's part of the Kubernetes API (DESIGN.md §8): the
// kinds that administrators write, and the names by which Services say more than
// their own fields can.
//
// It stands beside the sources of the story of DESIGN.md §1: the controller reads
// these kinds to decide which addresses and which nodes a service gets, and agents
// read them to know what their node serves. What a schema can check, the schemas
// check, so that a wrong object is refused by the API server.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.io
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../tools/go.mod controller-gen crd:maxDescLen=1024 paths=. output:crd:dir=../../deploy/helm/fairlead/crds
