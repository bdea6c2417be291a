// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"golang.org/x/time/rate"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/internal/wait"
)

// How often a node reports what it serves: the changes within reportTick together, reportBurst
// times in a row and from then on once in reportInterval, or verdictInterval if backends have died
// or recovered. The report is also written reportRefresh after the last time: it has the traffic,
// and may have been deleted.
const (
	reportTick      = 500 * time.Millisecond
	reportBurst     = 4
	reportInterval  = 5 * time.Second
	verdictInterval = time.Second
	reportRefresh   = time.Minute
)

// reportRetry is the delay after a report that could not be written.
var reportRetry = wait.Backoff{First: time.Second, Max: time.Minute, Jitter: 0.5}

// reporter reports what a node serves.
type reporter struct {
	store *store.Store
	// routes is the part of a report that changes without the store.
	routes   func() source.Report
	describe func() observe.Status
	traffic  *traffic
	send     func(context.Context, *source.Report) error
	log      *slog.Logger
}

// report has Config.Reporter write what this node serves, from when that has been tried until
// ctx ends.
func (a *Agent) report(ctx context.Context) {
	if a.Reporter == nil || a.reconciler.Settled(ctx, 1) != nil {
		return
	}
	reporter{a.store, a.reportedRoutes, a.Describe, &traffic{read: a.Plane.Stats}, a.Reporter.Report, a.Log}.run(ctx)
}

// run sends a report whenever it differs from the one before, until ctx ends.
func (r reporter) run(ctx context.Context) {
	limit, verdicts := rate.NewLimiter(rate.Every(reportInterval), reportBurst), rate.NewLimiter(rate.Every(verdictInterval), reportBurst)
	var written source.Report
	var refresh time.Time
	// A report that has changed and changed back is written, too: readers may wait for a newer one.
	differs := false
	failed := ""
	for failures := 0; ctx.Err() == nil; {
		_, changed := r.store.Watch()
		routes := r.routes()
		report, settled := r.complete(routes)
		if !settled {
			report.Observed = written.Observed
		}
		measured := r.traffic.update(ctx, report.Draining)
		report.PacketsPerSecond, report.BitsPerSecond = r.traffic.packets, r.traffic.bits
		differs = differs || !reflect.DeepEqual(report, written)
		if !differs && time.Now().Before(refresh) {
			until := refresh
			if measured.Before(until) {
				until = measured
			}
			r.awaitNews(ctx, changed, routes, until)
			continue
		}
		if judged := !reflect.DeepEqual(report.Unhealthy, written.Unhealthy); !limit.Allow() && (!judged || !verdicts.Allow()) {
			pause(ctx, reportTick)
			continue
		}
		err := r.send(ctx, &report)
		if err == nil || ctx.Err() != nil {
			written, refresh, differs = report, time.Now().Add(reportRefresh), false
			failures, failed = 0, ""
			continue
		}
		if err.Error() != failed {
			failed = err.Error()
			r.log.Warn("report of this node not written, retrying", "error", err)
		}
		failures++
		pause(ctx, reportRetry.Delay(failures))
	}
}

// awaitNews waits until what is reported may have changed, until is over, or ctx ends.
func (r reporter) awaitNews(ctx context.Context, changed <-chan struct{}, routes source.Report, until time.Time) {
	for ctx.Err() == nil && time.Now().Before(until) {
		pause(ctx, reportTick)
		select {
		case <-changed:
			return
		default:
		}
		if !reflect.DeepEqual(r.routes(), routes) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// reportedRoutes returns the part of a report that changes without the store: routes, sessions,
// and the problems of objects.
func (a *Agent) reportedRoutes() (r source.Report) {
	r.Observed, r.Draining = a.Reporter.Delivered(), a.Reporter.Draining()
	var status observe.Status
	a.Source.Describe(&status)
	if server := status.Followed(); server != nil {
		addProblems(&r, server.Problems)
	}
	if a.announcer == nil {
		return r
	}
	for _, d := range a.announcer.Decisions() {
		if d.Announced {
			r.Announced++
			continue
		}
		r.Withheld++
		if len(r.WithheldRoutes) < source.MaxReported {
			r.WithheldRoutes = append(r.WithheldRoutes, source.WithheldRoute{Prefix: d.Prefix, Reason: withheldReason(&d)})
		}
	}
	for _, p := range a.Speaker.Peers() {
		established := p.State == bgp.Established
		if established {
			r.Sessions++
		}
		if len(r.Peers) < source.MaxReported {
			r.Peers = append(r.Peers, source.ReportedPeer{Address: p.Address, Established: established, Reason: p.Reason, Since: p.Since})
		}
	}
	return r
}

// withheldReason is why a prefix has no route. How long damping still lasts changes all the time.
func withheldReason(d *announce.Decision) string {
	if !d.Damped.IsZero() {
		return "damped"
	}
	return d.Reason
}

// traffic measures what a node forwards, once in reportRefresh, or in reportInterval while the node
// drains.
type traffic struct {
	read func(context.Context) (dataplane.Stats, error)
	last dataplane.Stats
	at   time.Time
	// packets and bits are those per second between the last two readings.
	packets, bits uint64
}

// update reads the counters if that is due, and returns when it is due again. A reading that fails,
// which the data plane logs, is repeated at the next call; until then the traffic is what was measured
// last, as no traffic would have the node's group give nodes back.
func (t *traffic) update(ctx context.Context, draining bool) (next time.Time) {
	interval := reportRefresh
	if draining {
		interval = reportInterval
	}
	took := time.Since(t.at)
	if took < interval {
		return t.at.Add(interval)
	}
	now, err := t.read(ctx)
	if err != nil {
		return time.Now().Add(interval)
	}
	var packets, bytes uint64
	for vip, s := range now.Services {
		before, known := t.last.Services[vip]
		if known && s.Packets >= before.Packets && s.Bytes >= before.Bytes { // the same service
			packets += s.Packets - before.Packets
			bytes += s.Bytes - before.Bytes
		}
	}
	t.packets, t.bits = uint64(float64(packets)/took.Seconds()), uint64(float64(bytes)*8/took.Seconds())
	t.last, t.at = now, time.Now()
	return t.at.Add(interval)
}

// addProblems lists the first problem of each object; problems of one follow each other.
func addProblems(r *source.Report, problems []observe.Problem) {
	for i, p := range problems {
		switch {
		case i > 0 && problems[i-1].Object == p.Object:
		case len(r.Problems) == source.MaxReported:
			r.OmittedProblems++
		default:
			r.Problems = append(r.Problems, source.ReportedProblem{Object: p.Object, Text: p.Text})
		}
	}
}

// complete completes a report by what the store has, and reports whether all of that has been
// programmed or has failed. It allocates little: while thousands of services change one by one it is
// called once a second.
func (r reporter) complete(report source.Report) (_ source.Report, settled bool) {
	agent, snapshot := r.describe(), r.store.Snapshot()
	report.Version, report.Started, report.DataPlane = agent.Version, agent.Started, agent.DataPlane.Kind
	_, drained := snapshot.Draining(store.Target{})
	report.Draining = report.Draining || drained
	settled = true
	for i := range snapshot.Services {
		addService(&report, &snapshot.Services[i])
		settled = settled && tried(&snapshot.Services[i])
	}
	for _, status := range snapshot.Deleting {
		report.Services.Total++
		addError(&report, status)
	}
	return report, settled
}

// tried reports whether a service has been programmed or has failed. One that is programmed may have
// failed since.
func tried(e *store.Entry) bool {
	return e.Status != nil && (e.Status.Programmed == e.Revision || e.Status.Error != "")
}

func addService(r *source.Report, e *store.Entry) {
	r.Services.Total++
	if e.Panic {
		r.Services.Panic++
	}
	if e.Drained {
		r.Services.Drained++
	}
	if status := e.Status; status != nil {
		if status.Programmed == e.Revision {
			r.Services.Programmed++
		}
		r.Backends.InUse += status.State.InUse()
		addError(r, status)
	}
	r.Backends.Total += len(e.Service.Backends)
	for i := range e.Service.Backends {
		b := &e.Service.Backends[i]
		if b.Drained {
			r.Backends.Drained++
		}
		if e.Healthy < len(e.Service.Backends) {
			addUnhealthy(r, e, b.ID())
		}
	}
}

// addError counts and lists a service that the data plane refused.
func addError(r *source.Report, status *store.Status) {
	if status.Error != "" {
		r.Services.Failed++
		if len(r.Failed) < source.MaxReported {
			r.Failed = append(r.Failed, source.ReportedProblem{Object: status.Name, Text: status.Error})
		}
	}
}

func addUnhealthy(r *source.Report, e *store.Entry, id lb.BackendID) {
	state, judged := e.Health[id]
	if e.Configured.Health == nil || !judged || !state.Known || state.Healthy {
		return
	}
	r.Backends.Unhealthy++
	if len(r.Unhealthy) < source.MaxReported {
		r.Unhealthy = append(r.Unhealthy, source.UnhealthyBackend{Service: e.Service.Name, Backend: id, Reason: state.Reason, Since: state.Since})
	}
}
