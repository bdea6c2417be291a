// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
)

// view is one look at an agent: what is desired, what came of it, and the
// counters as they are now with the rates of the last second.
type view struct {
	desired  store.Snapshot
	statuses map[lb.VIP]reconcile.Status
	stats    dataplane.Stats
	rates    span
}

func (a *Agent) look(ctx context.Context, rates span) (view, error) {
	stats, err := a.Stats(ctx)
	if err != nil {
		return view{}, err
	}
	return a.view(stats, rates), nil
}

// view puts counters beside what is desired and what came of it.
func (a *Agent) view(stats dataplane.Stats, rates span) view {
	v := view{desired: a.Desired(), statuses: map[lb.VIP]reconcile.Status{}, stats: stats, rates: rates}
	for _, s := range a.Programmed() {
		v.statuses[s.VIP] = s
	}
	return v
}

// status summarises the view.
func (a *Agent) status(v view) Status {
	s := Status{
		Version: a.Version, Commit: a.Commit, Node: a.Node,
		PID: os.Getpid(), Started: a.Started, Listen: a.Listen,
		Config: a.Config(), Kubernetes: a.Kubernetes(),
		Revision:  v.desired.Revision,
		DataPlane: DataPlane{Kind: a.Kind, Attachments: a.Attachments()},
		BGP:       a.Routes().counts(),
		Exits:     []Exit{},
	}
	if d, draining := v.desired.Draining(store.Target{}); draining {
		s.Draining, s.DrainingSince = true, d.Since
	}
	for _, service := range v.services() {
		s.Services.add(service)
	}
	for _, backend := range v.backends() {
		s.Backends.add(backend)
	}
	for _, name := range slices.Sorted(maps.Keys(v.stats.Exits)) {
		s.Exits = append(s.Exits, Exit{Name: name, Packets: v.stats.Exits[name], PacketsPerSecond: v.rates.exit(name)})
	}
	return s
}

// services lists the desired services and those whose deletion is not done, by
// VIP.
func (v view) services() []Service {
	services := make([]Service, 0, len(v.desired.Services))
	for _, entry := range v.desired.Services {
		services = append(services, v.service(entry))
	}
	for _, status := range v.statuses {
		if status.Deleting && !v.desires(status.VIP) {
			services = append(services, v.deleted(status))
		}
	}
	slices.SortFunc(services, func(a, b Service) int { return a.VIP.Compare(b.VIP) })
	return services
}

func (v view) desires(vip lb.VIP) bool {
	_, found := slices.BinarySearchFunc(v.desired.Services, vip, func(e store.Entry, vip lb.VIP) int {
		return e.Service.VIP.Compare(vip)
	})
	return found
}

// service shows a desired service. The reconciler may not have seen it yet.
func (v view) service(entry store.Entry) Service {
	svc, status := entry.Service, v.statuses[entry.Service.VIP]
	s := Service{
		Name: svc.Name, VIP: svc.VIP, Forward: svc.Forward, Affinity: svc.Affinity, AffinityTimeout: svc.AffinityTimeout,
		Programmed:         status.Programmed == entry.Revision,
		DesiredRevision:    entry.Revision,
		ProgrammedRevision: status.Programmed,
		Error:              status.Error, Attempts: status.Attempts,
		Backends: len(svc.Backends), BackendsInUse: status.State.InUse(),
		BackendsHealthy: entry.Healthy, Panic: entry.Panic, Drained: entry.Drained,
		RingSize: status.State.RingSize,
		Tracking: v.stats.Services[svc.VIP].Tracking,
		Traffic:  v.stats.Services[svc.VIP].Traffic,
		Rate:     v.rates.service(svc.VIP),
	}
	for _, b := range svc.Backends {
		if b.Weight == 0 {
			s.BackendsDrained++
		}
	}
	return s
}

// deleted shows a service that is no longer desired but not yet gone.
func (v view) deleted(status reconcile.Status) Service {
	return Service{
		Name: status.Name, VIP: status.VIP, Deleting: true,
		ProgrammedRevision: status.Programmed,
		Error:              status.Error, Attempts: status.Attempts,
		BackendsInUse: status.State.InUse(), RingSize: status.State.RingSize,
		Tracking: v.stats.Services[status.VIP].Tracking,
		Traffic:  v.stats.Services[status.VIP].Traffic,
		Rate:     v.rates.service(status.VIP),
	}
}

// backends lists the backends of all desired services, by VIP and address.
func (v view) backends() []Backend {
	backends := []Backend{}
	for _, entry := range v.desired.Services {
		backends = append(backends, v.backendsOf(entry)...)
	}
	return backends
}

// backendsOf lists the desired backends, and while the desired revision is not
// programmed also those that are balanced instead of them.
func (v view) backendsOf(entry store.Entry) []Backend {
	svc, status := entry.Service, v.statuses[entry.Service.VIP]
	states := map[lb.BackendID]dataplane.BackendState{}
	for _, state := range status.State.Backends {
		states[state.ID] = state
	}
	list := make([]Backend, 0, len(svc.Backends))
	for i, b := range svc.Backends {
		state, known := states[b.ID()]
		if !known {
			state.Reason = "not programmed"
		}
		delete(states, b.ID())
		shown := v.backend(svc, b, state, status.State.RingSize)
		shown.Weight = entry.Configured.Backends[i].Weight
		shown.Health = healthOf(entry, b.ID())
		if entry.Configured.Backends[i].Weight > 0 && b.Weight == 0 && !b.Drained {
			shown.Reason = "not probed yet"
		}
		list = append(list, shown)
	}
	for id, state := range states {
		state.Reason = cmp.Or(state.Reason, "no longer desired")
		list = append(list, v.backend(svc, lb.Backend{Address: id.Addr(), Port: id.Port()}, state, status.State.RingSize))
	}
	slices.SortFunc(list, func(a, b Backend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
	return list
}

func (v view) backend(svc *lb.Service, b lb.Backend, state dataplane.BackendState, ringSize int) Backend {
	shown := Backend{
		Service: svc.Name, VIP: svc.VIP,
		Address: b.Address, Port: b.Port, Weight: b.Weight, Drained: b.Drained,
		Health: Health{State: HealthUnchecked},
		InUse:  state.InUse, Reason: state.Reason, NextHop: state.NextHop,
		RingEntries: state.RingEntries,
		Traffic:     v.stats.Services[svc.VIP].Backends[b.ID()],
		Rate:        v.rates.backend(svc.VIP, b.ID()),
	}
	if ringSize > 0 {
		shown.Share = float64(state.RingEntries) / float64(ringSize)
	}
	return shown
}
