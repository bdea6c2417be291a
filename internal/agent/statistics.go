// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/spec"
)

// How often a node reports counters: changes are looked for once in statisticsTick, and written
// once in statisticsInterval, after a pause statisticsBurst times in a row.
const (
	statisticsTick     = 5 * time.Second
	statisticsInterval = time.Minute
	statisticsBurst    = 2
)

// statisticsReporter reports the counters of listeners.
type statisticsReporter struct {
	// latest returns the observer's latest reading of the counters, which is made anyway.
	latest func(ctx context.Context, after *observe.Snapshot) (*observe.Snapshot, error)
	send   func(context.Context, *v1alpha1.BalancerNodeStatisticsStatus) error
	log    *slog.Logger
}

// reportStatistics has Config.Reporter write this node's traffic counters until ctx ends.
func (a *Agent) reportStatistics(ctx context.Context) {
	if a.Reporter != nil {
		statisticsReporter{a.observer.Next, a.Reporter.ReportStatistics, a.Log}.run(ctx)
	}
}

// run sends counters when they have changed, until ctx ends.
func (r statisticsReporter) run(ctx context.Context) {
	limit := rate.NewLimiter(rate.Every(statisticsInterval), statisticsBurst)
	var written []v1alpha1.ListenerStatistics
	failed := ""
	for ; ctx.Err() == nil; pause(ctx, statisticsTick) {
		if limit.Tokens() < 1 {
			continue
		}
		reading, err := r.latest(ctx, nil)
		if err != nil || reading.Err != nil { // the observer logs why
			continue
		}
		listeners := listenerStatistics(reading)
		if slices.Equal(listeners, written) || !limit.Allow() {
			continue
		}
		listed := fitting(listeners)
		err = r.send(ctx, &v1alpha1.BalancerNodeStatisticsStatus{
			Reported: metav1.NewTime(reading.Time), Listeners: listed, OmittedListeners: int32(len(listeners) - len(listed)),
		})
		if err == nil || ctx.Err() != nil {
			written, failed = listeners, ""
			continue
		}
		if err.Error() != failed {
			failed = err.Error()
			r.log.Warn("counters of this node not written, retrying", "error", err)
		}
	}
}

// listenerStatistics returns the counters of the listeners of LoadBalancers.
func listenerStatistics(reading *observe.Snapshot) (all []v1alpha1.ListenerStatistics) {
	for service, t := range reading.Traffic() {
		if kind, _, _ := spec.ObjectOf(service.Name); kind == "LoadBalancer" {
			all = append(all, v1alpha1.ListenerStatistics{
				Service: service.Name, Packets: clamp(t.Packets), Bytes: clamp(t.Bytes), NewFlows: clamp(t.NewFlows),
			})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.ListenerStatistics) int { return cmp.Compare(a.Service, b.Service) })
	return all
}

// maxStatistics bounds the listeners of a BalancerNodeStatistics, in bytes of JSON: etcd stores
// objects of 1.5 MiB at most.
const maxStatistics = 900_000

// fitting returns as many listeners as fit into one object: of each namespace in turn, so that one with
// many leaves others theirs.
func fitting(listeners []v1alpha1.ListenerStatistics) []v1alpha1.ListenerStatistics {
	order, turns, count := make([]int, len(listeners)), make([]int, len(listeners)), map[string]int{}
	for i := range listeners {
		_, namespace, _ := spec.ObjectOf(listeners[i].Service)
		order[i], turns[i] = i, count[namespace]
		count[namespace]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(turns[a], turns[b]) })
	size := 0
	fit := slices.IndexFunc(order, func(i int) bool {
		text, _ := json.Marshal(&listeners[i]) // text and numbers: there is no error
		size += len(text) + len(",")
		return size > maxStatistics
	})
	if fit < 0 {
		return listeners
	}
	listed := make([]v1alpha1.ListenerStatistics, fit)
	slices.Sort(order[:fit])
	for n, i := range order[:fit] {
		listed[n] = listeners[i]
	}
	return listed
}
