// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
)

// traffic has counters of forwarded traffic.
type traffic struct {
	Packets  int64 `json:"packets"`
	Bytes    int64 `json:"bytes"`
	NewFlows int64 `json:"newFlows"`
}

// add adds counts. The largest number stands for all that are larger.
func (t *traffic) add(o traffic) {
	sum := func(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }
	t.Packets, t.Bytes, t.NewFlows = sum(t.Packets, o.Packets), sum(t.Bytes, o.Bytes), sum(t.NewFlows, o.NewFlows)
}

// listenerTraffic is the forwarded traffic of a listener.
type listenerTraffic struct {
	Name string `json:"name"`
	traffic
}

// balancerTraffic is the traffic of a load balancer that the nodes of its group have forwarded.
type balancerTraffic struct {
	Name string `json:"name"`
	// Nodes is the number of nodes of the group, ReportedNodes the number of nodes with counters in
	// the sum, OldestReport the time at which the oldest of these counters were read.
	Nodes         int          `json:"nodes"`
	ReportedNodes int          `json:"reportedNodes"`
	OldestReport  *metav1.Time `json:"oldestReport,omitempty"`
	traffic
	Listeners []listenerTraffic `json:"listeners"`
}

// statistics answers with the counters of a load balancer.
func (s *server) statistics(ctx context.Context, c *call) (int, any, error) {
	b, err := s.balancer(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	var reports map[string]*v1alpha1.BalancerNodeStatisticsStatus
	if b.Status.Group != "" {
		if reports, err = s.store.Statistics(ctx, b.Status.Group); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, trafficOf(b, reports), nil
}

// trafficOf adds up the counters of a load balancer in the reports of its group's nodes. Reports
// without any of its listeners, also those that omit them, don't count as reports. Reports are
// sorted by service, and list thousands of them.
func trafficOf(b *v1alpha1.LoadBalancer, reports map[string]*v1alpha1.BalancerNodeStatisticsStatus) balancerTraffic {
	all := balancerTraffic{Name: b.Name, Nodes: len(reports), Listeners: make([]listenerTraffic, len(b.Spec.Listeners))}
	services := make([]string, len(b.Spec.Listeners))
	for i := range b.Spec.Listeners {
		all.Listeners[i].Name = b.Spec.Listeners[i].Name
		services[i] = spec.ListenerName(b, b.Spec.Listeners[i].Name)
	}
	for _, report := range reports {
		if report == nil {
			continue
		}
		reported := false
		for i, service := range services {
			at, found := slices.BinarySearchFunc(report.Listeners, service, func(l v1alpha1.ListenerStatistics, service string) int {
				return strings.Compare(l.Service, service)
			})
			if !found {
				continue
			}
			l := &report.Listeners[at]
			t := traffic{l.Packets, l.Bytes, l.NewFlows}
			all.Listeners[i].add(t)
			all.add(t)
			reported = true
		}
		if !reported {
			continue
		}
		all.ReportedNodes++
		if all.OldestReport == nil || report.Reported.Before(all.OldestReport) {
			all.OldestReport = &report.Reported
		}
	}
	return all
}
