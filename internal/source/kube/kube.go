// SPDX-License-Identifier: Apache-2.0

// Package kube is the source of a node of a Kubernetes cluster (DESIGN.md §8).
//
// It stands at the beginning of the story of ARCHITECTURE.md. Its files are read
// in this order: a Watcher follows the objects of the API server (watch.go), a
// World holds what this node needs of them and what depends on what (world.go),
// and translates, object by object, into services and routes: service.go with
// endpoint.go and topology.go, loadbalancer.go, peer.go and policy.go. Translating
// is pure. A Source hands over what changed, and keeps the last state in a file,
// from which an agent serves that starts while the API server is away.
//
// The package writes nothing to the API: the controller decides which node serves
// what, and says so in annotations and in the status of LoadBalancerGroups.
package kube

import (
	"cmp"
	"strings"
)

// Kind is a kind of objects that a World holds.
type Kind string

// The kinds.
const (
	KindService       Kind = "Service"
	KindEndpointSlice Kind = "EndpointSlice"
	KindNode          Kind = "Node"
	KindGroup         Kind = "LoadBalancerGroup"
	KindLoadBalancer  Kind = "LoadBalancer"
	KindPeer          Kind = "BGPPeer"
	KindPool          Kind = "AddressPool"
	KindSecret        Kind = "Secret"
)

// Object names an object of the cluster.
type Object struct {
	Kind Kind `json:"kind"`
	// Namespace is empty for objects of the cluster as a whole.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns for example "Service default/web" or "BGPPeer tor1".
func (o Object) String() string {
	if o.Namespace == "" {
		return string(o.Kind) + " " + o.Name
	}
	return string(o.Kind) + " " + o.Namespace + "/" + o.Name
}

// Compare orders objects by kind, namespace and name.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), strings.Compare(o.Namespace, p.Namespace), strings.Compare(o.Name, p.Name))
}

// Problem is something in an object that keeps it, or a part of it, from being
// served as it is written.
type Problem struct {
	Object
	Text string `json:"text"`
}

// String returns the object and what is wrong with it.
func (p Problem) String() string { return p.Object.String() + ": " + p.Text }
