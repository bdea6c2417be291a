// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/internal/version"
)

// Describe implements observe.Agent.
func (a *Agent) Describe() observe.Status {
	status := observe.Status{
		Version: version.Version, Commit: version.Commit(), Node: a.Source.Config().Node.Name, Kernel: a.Kernel,
		Started: a.Started, Listen: web.Address(a.Page), Config: a.Source.State(),
		DataPlane: a.Plane.Describe(),
	}
	followed := a.Source.Followed()
	status.Kubernetes, status.APIServer, status.FollowedBackends = followed.Cluster, followed.Clouds, followed.Backends
	return status
}

// Snapshot implements observe.Agent.
func (a *Agent) Snapshot() store.Snapshot { return a.store.Snapshot() }

// Stats implements observe.Agent.
func (a *Agent) Stats(ctx context.Context) (dataplane.Stats, error) { return a.Plane.Stats(ctx) }

// Calling implements observe.Agent.
func (a *Agent) Calling() time.Time { return a.reconciler.Calling() }

// Attached implements observe.Agent.
func (a *Agent) Attached() bool {
	select {
	case <-a.attached:
		return true
	default:
		return false
	}
}

// Reload implements control.Agent. It waits until each changed service has been
// tried.
func (a *Agent) Reload(ctx context.Context) error {
	if err := a.Source.Reload(); err != nil {
		return err
	}
	return a.reconciler.Settled(ctx, a.store.Snapshot().Revision)
}

// Drain implements control.Agent. The traffic of a whole service is moved away
// first, because a drained service gets no new flows.
func (a *Agent) Drain(ctx context.Context, target store.Target) error {
	if a.announcer != nil && wholeService(target) {
		done, err := a.announcer.Drain(ctx, target.Service)
		if err != nil {
			return err
		}
		defer done()
	}
	return a.change(ctx, target, a.drains.Drain)
}

// Undrain implements control.Agent, also for a target that is about to be drained.
func (a *Agent) Undrain(ctx context.Context, target store.Target) error {
	if a.announcer != nil && wholeService(target) {
		a.announcer.CancelDrain(target.Service)
	}
	return a.change(ctx, target, a.drains.Undrain)
}

func wholeService(target store.Target) bool {
	return target.Service != "" && !target.Backend.IsValid()
}

// change applies an operator's change, and waits until the data plane and the
// routes follow it.
func (a *Agent) change(ctx context.Context, target store.Target, do func(store.Target) error) error {
	if err := do(target); err != nil {
		return err
	}
	if err := a.reconciler.Settled(ctx, a.store.Snapshot().Revision); err != nil || a.announcer == nil {
		return err
	}
	return a.announcer.Sync(ctx)
}

// Routes implements observe.Agent.
func (a *Agent) Routes() observe.Routes {
	conf := a.Source.Config().BGP
	if conf == nil && a.Hook == nil || a.announcer == nil {
		return observe.Routes{}
	}
	r := observe.Routes{Enabled: true, Peers: a.Speaker.Peers()}
	if conf != nil {
		r.ASN, r.RouterID = conf.ASN, conf.RouterID
	}
	peers := observe.Established(r.Peers)
	for _, d := range a.announcer.Decisions() {
		r.Announcements = append(r.Announcements, announcement(d, peers, time.Now()))
	}
	if a.Hook != nil {
		r.AddHook(a.Hook.Program, a.Hook.State())
	}
	return r
}

// announcement describes what was decided about a prefix; peers have a session.
func announcement(d announce.Decision, peers []netip.Addr, now time.Time) observe.Announcement {
	shown := observe.Announcement{
		Prefix: d.Prefix, Services: d.Services, Announced: d.Announced, Since: d.Since, Reason: d.Reason,
		GracefulShutdown: d.Route.GracefulShutdown, NextHop: d.Route.NextHop,
		Attributes: observe.Attributes(&d.Route.Attributes), Withdrawals: d.Withdrawals,
	}
	if d.Announced {
		shown.Peers = peers
	}
	if !d.Damped.IsZero() {
		shown.Reason = fmt.Sprintf("damped for %s", max(0, d.Damped.Sub(now)).Round(time.Second))
	}
	return shown
}
