// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
)

// Store keeps the LoadBalancers of projects, each one a unit that is written whole. They are JSON,
// not Go types, so that all fields reach validation as the client wrote them, and are read as text,
// of which callers decode as much as they need. Errors are from
// k8s.io/apimachinery/pkg/api/errors; others mean that the store can't be reached.
type Store interface {
	// Get returns a LoadBalancer as it is after all writes that have been answered, also those
	// of other servers. The error is NotFound if there is none.
	Get(ctx context.Context, project, name string) (text []byte, err error)
	// List returns a page of LoadBalancers, sorted by name. The error is ResourceExpired if
	// the page can't be continued any more.
	List(ctx context.Context, project string, page Page) (*List, error)
	// Create stores a LoadBalancer and completes it. The error is AlreadyExists if there is one of
	// its name.
	Create(ctx context.Context, project string, object *unstructured.Unstructured) error
	// Update replaces metadata and specification, and completes the object. The error is Conflict
	// if the object's resourceVersion isn't the current one.
	Update(ctx context.Context, project string, object *unstructured.Unstructured) error
	// Delete deletes a LoadBalancer. The error is Conflict if the object's resourceVersion isn't
	// the current one.
	Delete(ctx context.Context, project string, object *unstructured.Unstructured) error
	// Reports returns the reports of the ready nodes of a LoadBalancerGroup, by name; nil for nodes
	// without a report. It may be some moments old.
	Reports(ctx context.Context, group string) (map[string]*v1alpha1.BalancerNodeStatus, error)
	// Statistics returns the counters that all nodes of a LoadBalancerGroup report, by name; nil
	// for nodes without a report. It may be some moments old.
	Statistics(ctx context.Context, group string) (map[string]*v1alpha1.BalancerNodeStatisticsStatus, error)
	// Changed returns which LoadBalancers have been written or deleted since the last call, at first all,
	// and whether reports or counters of nodes have changed. Namespaces in the names are projects. Only one
	// call may run at a time.
	Changed(ctx context.Context) (names []types.NamespacedName, reported bool, err error)
	// Cached returns a LoadBalancer as Changed has seen it, or a later one; nil if there is none.
	Cached(ctx context.Context, name types.NamespacedName) (*v1alpha1.LoadBalancer, error)
	// Hold has a client's holder be its only one for leaseTime, or returns when another one's time ends.
	Hold(ctx context.Context, client, holder string) (other time.Duration, err error)
}

// Page selects LoadBalancers of a project.
type Page struct {
	Labels labels.Selector
	// Limit is the largest number of LoadBalancers.
	Limit int64
	// Continue is from the list before; empty for the first page.
	Continue string
}

// List is a page of LoadBalancers.
type List struct {
	Items []json.RawMessage
	// Continue is for the next page; empty after the last one.
	Continue string
	// Size is how many bytes were read, LoadBalancers without the labels included.
	Size int
}
