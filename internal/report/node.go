// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// Node is the report of a node, by objects.
type Node struct {
	Name string
	// Status is nil if the node hasn't reported.
	Status           *v1alpha1.BalancerNodeStatus
	problems, failed index[v1alpha1.NodeProblem]
	dead             index[v1alpha1.UnhealthyBackend]
	withheld         []withheldPrefix
}

type withheldPrefix struct {
	netip.Prefix
	message string
}

// index is a list of a report, by objects.
type index[T any] struct {
	entries map[alloc.Owner][]T
	places  places
	// cut is set if the list lacks entries.
	cut bool
}

func (x *index[T]) add(object string, entry T) {
	if x.entries == nil {
		x.entries = map[alloc.Owner][]T{}
	}
	owner := ownerOf(object)
	x.entries[owner] = append(x.entries[owner], entry)
	x.places.add(source.NamespaceOf(object))
}

// of returns the entries of an object, and whether the list lacks none of its namespace.
func (x *index[T]) of(o alloc.Owner) (entries []T, all bool) {
	return x.entries[o], !x.cut || x.places.whole(o.Namespace)
}

// ownerOf returns the object that an entry of a list is about.
func ownerOf(object string) alloc.Owner {
	kind, name, isObject := strings.Cut(object, " ")
	if !isObject {
		kind, namespace, name := spec.ObjectOf(object)
		return alloc.Owner{Kind: kind, Namespace: namespace, Name: name}
	}
	namespace, name, _ := strings.Cut(name, "/")
	return alloc.Owner{Kind: kind, Namespace: namespace, Name: name}
}

// Read reads a node's report; nil if there is none.
func Read(name string, status *v1alpha1.BalancerNodeStatus) *Node {
	n := &Node{Name: name, Status: status}
	if status == nil {
		return n
	}
	for _, p := range status.Problems {
		n.problems.add(p.Object, p)
	}
	for _, p := range status.FailedServices {
		n.failed.add(p.Object, p)
	}
	for _, b := range status.Unhealthy {
		n.dead.add(b.Service, b)
	}
	for _, w := range status.Withheld {
		if prefix, err := netip.ParsePrefix(w.Prefix); err == nil {
			n.withheld = append(n.withheld, withheldPrefix{prefix, w.Message})
		}
	}
	n.problems.cut = status.OmittedProblems > 0
	n.failed.cut = int(status.Services.Failed) > len(status.FailedServices)
	n.dead.cut = int(status.Backends.Unhealthy) > len(status.Unhealthy)
	return n
}

// Failed returns the services of an object that the node's data plane refused.
func (n *Node) Failed(o alloc.Owner) []v1alpha1.NodeProblem { return n.failed.entries[o] }

// Problem returns why the node doesn't serve an object as it is specified; empty if it reports no
// reason. The report lists all reasons of the object's namespace if all is set.
func (n *Node) Problem(o alloc.Owner) (message string, all bool) {
	failed, allFailed := n.failed.of(o)
	problems, allProblems := n.problems.of(o)
	for _, p := range slices.Concat(failed, problems) {
		return p.Message, true
	}
	return "", allFailed && allProblems
}

// Covers reports whether the report covers a version of an object.
func (n *Node) Covers(o alloc.Owner, version string) bool {
	observed := n.Status.Observed.Services
	if o.Kind == "LoadBalancer" {
		observed = n.Status.Observed.LoadBalancers
	}
	order, err := resourceversion.CompareResourceVersion(observed, version)
	return err == nil && order >= 0
}

// HasRoutes reports whether the node has prefixes to announce: not without BGP.
func (n *Node) HasRoutes() bool { return n.Status.Routes.Announced+n.Status.Routes.Withheld > 0 }

// Announces reports whether the node announces addresses at all, and if not, why.
func (n *Node) Announces() (bool, string) {
	switch s := n.Status; {
	case s.Draining && s.Routes.Announced == 0:
		return false, "draining"
	case len(s.Peers) > 0 && s.Routes.Sessions == 0:
		return false, "no session with a router"
	}
	return true, ""
}

// Withholds reports whether the node lists an address as not announced, and why. The report lists
// all withheld prefixes if all is set.
func (n *Node) Withholds(a netip.Addr) (message string, withheld, all bool) {
	at := slices.IndexFunc(n.withheld, func(w withheldPrefix) bool { return w.Contains(a) })
	if at >= 0 {
		message = n.withheld[at].message
	}
	return message, at >= 0, int(n.Status.Routes.Withheld) <= len(n.Status.Withheld)
}

// DeadBackend is a backend of an object that health checks found dead.
type DeadBackend struct {
	// Backend is its address and port.
	Backend string
	// Services are the services of the object in which it is dead, Nodes the nodes that found it dead.
	Services, Nodes []string
	// Message is how the last check of the first node failed.
	Message string
}

// Dead returns the dead backends of an object that nodes report, sorted, and whether these are all.
func Dead(o alloc.Owner, nodes []*Node) (dead []DeadBackend, all bool) {
	all = true
	for _, n := range nodes {
		listed, whole := n.dead.of(o)
		all = all && whole && n.Status != nil
		for _, b := range listed {
			at, found := slices.BinarySearchFunc(dead, b.Backend, func(d DeadBackend, backend string) int { return strings.Compare(d.Backend, backend) })
			if !found {
				dead = slices.Insert(dead, at, DeadBackend{Backend: b.Backend, Message: b.Message})
			}
			d := &dead[at]
			if !slices.Contains(d.Nodes, n.Name) {
				d.Nodes = append(d.Nodes, n.Name)
			}
			if !slices.Contains(d.Services, b.Service) {
				d.Services = append(d.Services, b.Service)
			}
		}
	}
	return dead, all
}
