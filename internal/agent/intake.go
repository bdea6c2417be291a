// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/store"
)

// intake is the only writer of the node's services: it applies the updates of the source and the
// results of health checks.
//
// An update goes to health first, because the store needs to know how new backends count until they
// have been probed, then to the store, and then the services that leave are handed off. The lock is
// held meanwhile, so verdicts are applied before or after an update: the store ignores verdicts on
// unknown backends, and health reports each only once.
type intake struct {
	local     bgp.Local
	monitor   *health.Monitor
	store     *store.Store
	announcer *announce.Announcer // nil without BGP
	plane     dataplane.Discarder
	log       *slog.Logger

	// mu is taken before the locks of the monitor and the store.
	mu       sync.Mutex
	handoffs handoffs
}

// apply passes an update to health and the store. Hand-offs that it begins end with ctx.
func (in *intake) apply(ctx context.Context, u source.Update) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if u.Routes != nil && in.announcer != nil {
		in.announcer.Configure(&bgp.Config{
			Local: in.local, Peers: u.Routes.Peers, Policies: u.Routes.Policies, ShutdownDelay: u.Routes.ShutdownDelay,
		})
		in.discard(u.Routes.Policies)
	}
	if u.Incomplete {
		in.store.SetIncomplete(true)
	}
	leaving := in.begin(u.Leaving)
	obstacles := in.cancel(u.Changed)
	var err error
	if u.Whole {
		err = in.set(slices.Concat(u.Changed, in.handoffs.services()))
	} else {
		err = in.update(u.Changed, slices.Concat(u.Removed, obstacles))
	}
	if err == nil && !u.Incomplete {
		in.store.SetIncomplete(false)
	}
	in.handOff(ctx, leaving)
	return err
}

// discard has packets for unused addresses of aggregates discarded.
func (in *intake) discard(policies []bgp.Policy) {
	var aggregates []netip.Prefix
	for _, p := range policies {
		if p.Aggregate {
			aggregates = append(aggregates, p.Prefixes...)
		}
	}
	if err := in.plane.Discard(aggregates); err != nil {
		in.log.Error("unused addresses not discarded", slog.Any("error", err))
	}
}

// set replaces all services.
func (in *intake) set(services []lb.Service) error {
	in.monitor.Set(services)
	_, err := in.store.Set(services, in.monitor.States()...)
	return in.refused(err)
}

// update replaces single services.
func (in *intake) update(changed []lb.Service, removed []lb.VIP) error {
	if len(changed) == 0 && len(removed) == 0 {
		return nil
	}
	in.monitor.Update(changed, removed)
	_, err := in.store.Update(changed, removed, in.monitor.StatesOf(changed)...)
	return in.refused(err)
}

// refused resets the health targets to the store's services after a rejected update, if err isn't
// nil, and returns err.
func (in *intake) refused(err error) error {
	if err == nil {
		return nil
	}
	entries := in.store.Snapshot().Services
	services := make([]lb.Service, len(entries))
	for i := range entries {
		services[i] = *entries[i].Configured
	}
	in.monitor.Set(services)
	return err
}

// applyVerdicts applies verdicts of health checks, as they are when no update is under way.
func (in *intake) applyVerdicts(verdicts func() []health.Verdict) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.store.ApplyVerdicts(verdicts())
}
