// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
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
	send   func(context.Context, *source.Statistics) error
	log    *slog.Logger
}

// reportStatistics has Config.Reporter write what this node has forwarded until ctx ends.
func (a *Agent) reportStatistics(ctx context.Context) {
	if a.Reporter != nil {
		statisticsReporter{a.observer.Next, a.Reporter.ReportStatistics, a.Log}.run(ctx)
	}
}

// run sends counters when they have changed, until ctx ends.
func (r statisticsReporter) run(ctx context.Context) {
	limit := rate.NewLimiter(rate.Every(statisticsInterval), statisticsBurst)
	var written []source.ListenerStatistics
	failed := ""
	for ; ctx.Err() == nil; pause(ctx, statisticsTick) {
		if limit.Tokens() < 1 {
			continue
		}
		reading, err := r.latest(ctx, nil)
		if err != nil || reading.Err != nil { // the observer logs why
			continue
		}
		statistics := source.Statistics{Read: reading.Time, Listeners: listenerStatistics(reading)}
		if slices.Equal(statistics.Listeners, written) || !limit.Allow() {
			continue
		}
		err = r.send(ctx, &statistics)
		if err == nil || ctx.Err() != nil {
			written, failed = statistics.Listeners, ""
			continue
		}
		if err.Error() != failed {
			failed = err.Error()
			r.log.Warn("counters of this node not written, retrying", "error", err)
		}
	}
}

// listenerStatistics returns the counters of the listeners of LoadBalancers.
func listenerStatistics(reading *observe.Snapshot) (all []source.ListenerStatistics) {
	for service, t := range reading.Traffic() {
		if kind, _, _ := spec.ObjectOf(service.Name); kind == "LoadBalancer" {
			all = append(all, source.ListenerStatistics{Service: service.Name, Packets: t.Packets, Bytes: t.Bytes, NewFlows: t.NewFlows})
		}
	}
	slices.SortFunc(all, func(a, b source.ListenerStatistics) int { return cmp.Compare(a.Service, b.Service) })
	return all
}
