// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/apiserver/schema"
)

// reports are the last reports of nodes. They are kept in memory: nodes report at least once a
// minute.
type reports struct {
	kind *schema.Schema

	mu    sync.Mutex
	nodes map[string]report
}

// report is what a node reported, and when.
type report struct {
	status v1alpha1.BalancerNodeStatus
	at     time.Time
}

const (
	// reportLifetime is how long a report counts.
	reportLifetime = 3 * time.Minute
	// maxNodes is the largest number of nodes.
	maxNodes = 256
)

func newReports(kind *schema.Schema) *reports {
	return &reports{kind: kind, nodes: map[string]report{}}
}

// put validates and keeps a report. Fields that only newer agents know are ignored.
func (r *reports) put(node string, status map[string]any) error {
	kind := v1alpha1.GroupVersion().WithKind("BalancerNode")
	object := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	object.SetGroupVersionKind(kind)
	object.SetName(node)
	r.kind.Complete(object)
	if found := r.kind.Validate(context.Background(), object); len(found) > 0 {
		p := newProblem(http.StatusUnprocessableEntity, "the report is invalid")
		for _, e := range found {
			p.Errors = append(p.Errors, fieldError{strings.TrimPrefix(e.Field, "status."), e.ErrorBody()})
		}
		return p
	}
	var b v1alpha1.BalancerNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &b); err != nil {
		return newProblem(http.StatusUnprocessableEntity, err.Error())
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	if _, known := r.nodes[node]; !known && len(r.nodes) >= maxNodes {
		return newProblem(http.StatusConflict, "too many nodes")
	}
	r.nodes[node] = report{b.Status, now}
	return nil
}

// forget forgets nodes that don't report any more. mu is held.
func (r *reports) forget(now time.Time) {
	maps.DeleteFunc(r.nodes, func(_ string, last report) bool { return now.Sub(last.at) >= reportLifetime })
}

// all returns the reports that count, by node.
func (r *reports) all() map[string]*v1alpha1.BalancerNodeStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
	all := map[string]*v1alpha1.BalancerNodeStatus{}
	for node, last := range r.nodes {
		all[node] = last.status.DeepCopy()
	}
	return all
}

// Report keeps what a node reports.
func (s *embeddedStore) Report(node string, status map[string]any) error {
	return s.reports.put(node, status)
}

// putReport keeps the report of a node.
func (s *server) putReport(_ context.Context, c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.followed.Report(c.node, c.body)
}
