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
)

// reports are the last reports of nodes. They are kept in memory: nodes report their status at
// least once a minute, and counters when they have changed.
type reports struct {
	kinds kinds

	mu    sync.Mutex
	nodes map[string]nodeReports
	// news is set if something has changed since the last call of changed.
	news bool
}

// nodeReports are the last reports of a node, nil for none.
type nodeReports struct {
	status     *v1alpha1.BalancerNodeStatus
	statistics *v1alpha1.BalancerNodeStatisticsStatus
	// at is when it reported either, statusAt when the status.
	at, statusAt time.Time
}

// reportLifetime is how long reports count without another one.
const reportLifetime = 3 * time.Minute

func newReports(kinds kinds) *reports {
	return &reports{kinds: kinds, nodes: map[string]nodeReports{}}
}

// decode validates a report, which is the status of a kind. Fields that only newer agents know are
// ignored.
func (r *reports) decode(resource, kind, node string, status map[string]any, to any) error {
	object := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(kind))
	object.SetName(node)
	r.kinds[resource].Complete(object)
	if found := r.kinds[resource].Validate(context.Background(), object); len(found) > 0 {
		p := newHTTPError(http.StatusUnprocessableEntity, "the report is invalid")
		for _, e := range found {
			p.Errors = append(p.Errors, fieldError{strings.TrimPrefix(e.Field, "status."), e.ErrorBody()})
		}
		return p
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, to); err != nil {
		return newHTTPError(http.StatusUnprocessableEntity, err.Error())
	}
	return nil
}

// keep has change write a report into the reports of its node.
func (r *reports) keep(node string, change func(last *nodeReports, now time.Time)) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	last := r.nodes[node]
	last.at = now
	change(&last, now)
	r.nodes[node], r.news = last, true
}

// changed reports whether reports have changed since the last call.
func (r *reports) changed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
	news := r.news
	r.news = false
	return news
}

// forget forgets nodes that don't report any more, and old statuses of others. Counters remain: at
// rest a node doesn't repeat them. mu is held.
func (r *reports) forget(now time.Time) {
	before := len(r.nodes)
	maps.DeleteFunc(r.nodes, func(_ string, last nodeReports) bool { return now.Sub(last.at) >= reportLifetime })
	r.news = r.news || len(r.nodes) < before
	for node, last := range r.nodes {
		if last.status != nil && now.Sub(last.statusAt) >= reportLifetime {
			last.status = nil
			r.nodes[node], r.news = last, true
		}
	}
}

// all calls visit with the reports that count. Their targets are never modified.
func (r *reports) all(visit func(node string, last nodeReports)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
	for node, last := range r.nodes {
		visit(node, last)
	}
}

// Reports returns the statuses of all nodes: they are one group.
func (r *reports) Reports(context.Context, string) (map[string]*v1alpha1.BalancerNodeStatus, error) {
	all := map[string]*v1alpha1.BalancerNodeStatus{}
	r.all(func(node string, last nodeReports) { all[node] = last.status })
	return all, nil
}

// Statistics returns the counters of all nodes: they are one group.
func (r *reports) Statistics(context.Context, string) (map[string]*v1alpha1.BalancerNodeStatisticsStatus, error) {
	all := map[string]*v1alpha1.BalancerNodeStatisticsStatus{}
	r.all(func(node string, last nodeReports) { all[node] = last.statistics })
	return all, nil
}

// ReportStatistics keeps the counters of a node.
func (r *reports) ReportStatistics(node string, status map[string]any) error {
	var b v1alpha1.BalancerNodeStatistics
	if err := r.decode("balancernodestatistics", "BalancerNodeStatistics", node, status, &b); err != nil {
		return err
	}
	r.keep(node, func(last *nodeReports, _ time.Time) { last.statistics = &b.Status })
	return nil
}

// Report keeps the status of a node, and decides by its addresses.
func (s *embeddedStore) Report(node string, status map[string]any) error {
	var b v1alpha1.BalancerNode
	if err := s.reports.decode("balancernodes", "BalancerNode", node, status, &b); err != nil {
		return err
	}
	s.reports.keep(node, func(last *nodeReports, now time.Time) { last.status, last.statusAt = &b.Status, now })
	return s.setNode(node, b.Status.Addresses)
}

// putReport keeps a node's report of its status.
func (s *server) putReport(_ context.Context, c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.followed.Report(c.node, c.body)
}

// putStatistics keeps a node's report of its counters.
func (s *server) putStatistics(_ context.Context, c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.followed.ReportStatistics(c.node, c.body)
}
