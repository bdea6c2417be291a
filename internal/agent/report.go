// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/internal/wait"
)

// How often a node reports its status: the changes within reportTick together, reportBurst times in
// a row and from then on once in reportInterval, or verdictInterval if backends have died or
// recovered. The report is also written reportRefresh after the last time: it has the traffic, and
// may have been deleted.
const (
	reportTick      = 500 * time.Millisecond
	reportBurst     = 4
	reportInterval  = 5 * time.Second
	verdictInterval = time.Second
	reportRefresh   = time.Minute
)

// reportRetry is the delay after a report that could not be written.
var reportRetry = wait.Backoff{First: time.Second, Max: time.Minute, Jitter: 0.5}

// reporter reports the status of a node.
type reporter struct {
	store *store.Store
	// routes is the part of a report that changes without the store.
	routes   func() v1alpha1.BalancerNodeStatus
	describe func() observe.Status
	traffic  *traffic
	send     func(context.Context, *v1alpha1.BalancerNodeStatus) error
	log      *slog.Logger
}

// report has Config.Reporter write this node's status, once the data plane has been put to work, until
// ctx ends.
func (a *Agent) report(ctx context.Context) {
	select {
	case <-a.attached:
	case <-ctx.Done():
	}
	if a.Reporter == nil || ctx.Err() != nil {
		return
	}
	reporter{a.store, a.reportedRoutes, a.Describe, &traffic{read: a.Plane.Stats}, a.Reporter.Report, a.Log}.run(ctx)
}

// run sends a report whenever it differs from the one before, until ctx ends.
func (r reporter) run(ctx context.Context) {
	limit, verdicts := rate.NewLimiter(rate.Every(reportInterval), reportBurst), rate.NewLimiter(rate.Every(verdictInterval), reportBurst)
	var written v1alpha1.BalancerNodeStatus
	var refresh time.Time
	// A report that has changed and changed back is written, too: readers may wait for a newer one.
	differs := false
	failed := ""
	for failures := 0; ctx.Err() == nil; {
		_, changed := r.store.Watch()
		routes := r.routes()
		status, settled := r.complete(routes)
		if !settled {
			status.Observed = written.Observed
		}
		measured := r.traffic.update(ctx, status.Draining)
		status.Traffic = r.traffic.rate
		differs = differs || !reflect.DeepEqual(status, written)
		if !differs && time.Now().Before(refresh) {
			until := refresh
			if measured.Before(until) {
				until = measured
			}
			r.awaitNews(ctx, changed, &routes, until)
			continue
		}
		if judged := !reflect.DeepEqual(status.Unhealthy, written.Unhealthy); !limit.Allow() && (!judged || !verdicts.Allow()) {
			pause(ctx, reportTick)
			continue
		}
		sent := status
		sent.Reported = metav1.Now()
		err := r.send(ctx, &sent)
		if err == nil || ctx.Err() != nil {
			written, refresh, differs = status, time.Now().Add(reportRefresh), false
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

// awaitNews returns when the report may have changed, at until, or when ctx ends.
func (r reporter) awaitNews(ctx context.Context, changed <-chan struct{}, routes *v1alpha1.BalancerNodeStatus, until time.Time) {
	for ctx.Err() == nil && time.Now().Before(until) {
		pause(ctx, reportTick)
		select {
		case <-changed:
			return
		default:
		}
		if now := r.routes(); !reflect.DeepEqual(&now, routes) {
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
func (a *Agent) reportedRoutes() (r v1alpha1.BalancerNodeStatus) {
	r.Observed, r.Draining = a.Reporter.Delivered(), a.Reporter.Draining()
	followed := a.Source.Followed()
	if server := cmp.Or(followed.Cluster, followed.Clouds); server != nil {
		addProblems(&r, server.Problems)
	}
	if a.announcer == nil {
		return r
	}
	addRoutes(&r, a.announcer.Decisions())
	for _, p := range a.Speaker.Peers() {
		established := p.State == bgp.Established
		if established {
			r.Routes.Sessions++
		}
		if len(r.Peers) < report.MaxListed {
			r.Peers = append(r.Peers, v1alpha1.NodePeer{
				Address: p.Address.String(), Established: established, Message: shortened(p.Reason), Since: metav1.NewTime(p.Since),
			})
		}
	}
	return r
}

// addRoutes adds the number of routes, and the withheld ones with their reasons, to a report.
func addRoutes(r *v1alpha1.BalancerNodeStatus, decisions []announce.Decision) {
	var withheld report.List[*announce.Decision]
	for i := range decisions {
		d := &decisions[i]
		if d.Announced {
			r.Routes.Announced++
			if d.Route.GracefulShutdown {
				r.Routes.Leaving++
			}
			continue
		}
		r.Routes.Withheld++
		withheld.Add(source.NamespaceOf(cmp.Or(d.Services...)), d)
	}
	for _, d := range withheld.Entries() {
		r.Withheld = append(r.Withheld, v1alpha1.WithheldRoute{Prefix: d.Prefix.String(), Message: shortened(withheldReason(d))})
	}
}

// withheldReason is why a prefix has no route. How long damping still lasts changes all the time.
func withheldReason(d *announce.Decision) string {
	if !d.Damped.IsZero() {
		return "damped"
	}
	return d.Reason
}

// traffic measures a node's forwarded traffic, once in reportRefresh, or in reportInterval while
// the node drains.
type traffic struct {
	read func(context.Context) (dataplane.Stats, error)
	last dataplane.Stats
	at   time.Time
	// rate is of the time between the last two readings.
	rate v1alpha1.NodeTraffic
}

// update reads the counters if that is due, and returns when it is due again. A reading that fails,
// which the data plane logs, is repeated at the next call; until then the last rate is reported, as
// a rate of zero would have the node's group give nodes back.
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
	t.rate = v1alpha1.NodeTraffic{
		PacketsPerSecond: int64(float64(packets) / took.Seconds()), BitsPerSecond: int64(float64(bytes) * 8 / took.Seconds()),
	}
	t.last, t.at = now, time.Now()
	return t.at.Add(interval)
}

// addProblems lists the first problem of each object; problems of one follow each other.
func addProblems(r *v1alpha1.BalancerNodeStatus, problems []v1alpha1.NodeProblem) {
	var listed report.List[v1alpha1.NodeProblem]
	objects := 0
	for i, p := range problems {
		if i == 0 || problems[i-1].Object != p.Object {
			objects++
			listed.Add(source.NamespaceOf(p.Object), v1alpha1.NodeProblem{Object: p.Object, Message: shortened(p.Message)})
		}
	}
	r.Problems = listed.Entries()
	r.OmittedProblems = int32(objects - len(r.Problems))
}

// unhealthy is a backend that was found dead.
type unhealthy struct {
	service string
	backend lb.BackendID
	state   health.State
}

// complete completes a report by the services of the store, and reports whether each of them has been
// programmed or has failed. It allocates little: while thousands of services change one by one it is
// called once a second.
func (r reporter) complete(status v1alpha1.BalancerNodeStatus) (_ v1alpha1.BalancerNodeStatus, settled bool) {
	agent, snapshot := r.describe(), r.store.Snapshot()
	status.Version, status.Started, status.DataPlane = agent.Version, metav1.NewTime(agent.Started), agent.DataPlane.Kind
	_, drained := snapshot.Draining(store.Target{})
	status.Draining = status.Draining || drained
	status.Services, status.Backends = observe.Count(&snapshot)
	settled = true
	var failed report.List[v1alpha1.NodeProblem]
	addError := func(s *store.Status) {
		if s != nil && s.Error != "" {
			failed.Add(source.NamespaceOf(s.Name), v1alpha1.NodeProblem{Object: s.Name, Message: shortened(s.Error)})
		}
	}
	var dead report.List[unhealthy]
	for i := range snapshot.Services {
		e := &snapshot.Services[i]
		settled = settled && tried(e)
		addError(e.Status)
		for id, state := range e.Unhealthy() {
			dead.Add(source.NamespaceOf(e.Service.Name), unhealthy{e.Service.Name, id, state})
		}
	}
	for _, s := range snapshot.Deleting {
		addError(s)
	}
	status.FailedServices = failed.Entries()
	for _, u := range dead.Entries() {
		status.Unhealthy = append(status.Unhealthy, v1alpha1.UnhealthyBackend{
			Service: u.service, Backend: u.backend.String(), Message: shortened(u.state.Reason), Since: metav1.NewTime(u.state.Since),
		})
	}
	return status, settled
}

// tried reports whether a service has been programmed or has failed. One that is programmed may have
// failed since.
func tried(e *store.Entry) bool {
	return e.Status != nil && (e.Status.Programmed == e.Revision || e.Status.Error != "")
}

// maxMessage bounds each message of a report, in bytes.
const maxMessage = 256

func shortened(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// clamp returns a counter as the API has it.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
