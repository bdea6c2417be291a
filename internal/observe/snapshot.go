// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"iter"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// Snapshot is an agent at one reading of its counters. Derived values are computed once,
// for all readers, which must not change them.
type Snapshot struct {
	// Time is when the counters were read. Err is the error of reading them: all
	// counters are zero then.
	Time time.Time
	Err  error

	desired store.Snapshot
	stats   dataplane.Stats
	// rates are the rates of the last full second.
	rates interval

	// Status is the agent as a whole.
	Status func() Status
	// Services are all services by VIP.
	Services func() []Service
	// Routes are the announcements, and the peers.
	Routes func() Routes
	// Totals are the rates of all services together.
	Totals func() Totals
}

func newSnapshot(agent Agent, stats dataplane.Stats, rates interval, err error) *Snapshot {
	described := agent.Describe() // first: services are at least as new as the configuration that it names
	s := &Snapshot{Time: time.Now(), Err: err, desired: agent.Snapshot(), stats: stats, rates: rates}
	s.Services = sync.OnceValue(s.services)
	s.Routes = sync.OnceValue(func() Routes { return agent.Routes().complete() })
	s.Totals = sync.OnceValue(rates.totals)
	s.Status = sync.OnceValue(func() Status { return s.complete(described) })
	return s
}

// VIP returns the VIP of the desired service with a name.
func (s *Snapshot) VIP(service string) (lb.VIP, bool) {
	for _, entry := range s.desired.Services {
		if entry.Service.Name == service {
			return entry.Service.VIP, true
		}
	}
	return lb.VIP{}, false
}

// Traffic returns the desired services that the data plane has, with their counters.
func (s *Snapshot) Traffic() iter.Seq2[*lb.Service, dataplane.Traffic] {
	return func(yield func(*lb.Service, dataplane.Traffic) bool) {
		for i := range s.desired.Services {
			service := s.desired.Services[i].Service
			if stats, known := s.stats.Services[service.VIP]; known && !yield(service, stats.Traffic) {
				return
			}
		}
	}
}

// Backends returns the backends of the desired services for which wanted is true, by VIP
// and address.
func (s *Snapshot) Backends(wanted func(lb.VIP) bool) []Backend {
	backends := []Backend{}
	for _, entry := range s.desired.Services {
		if wanted(entry.Service.VIP) {
			backends = append(backends, s.backendsOf(entry)...)
		}
	}
	return backends
}

// AllBackends returns the backends of all desired services.
func (s *Snapshot) AllBackends() []Backend { return s.Backends(func(lb.VIP) bool { return true }) }

// complete adds counts, routes and exits to the description of an agent.
func (s *Snapshot) complete(status Status) Status {
	status.PID, status.Revision, status.BGP, status.Exits = os.Getpid(), s.desired.Revision, s.Routes().summary(), []Exit{}
	if d, draining := s.desired.Draining(store.Target{}); draining {
		status.Draining, status.DrainingSince = true, d.Since
	}
	status.Services, status.Backends = Count(&s.desired)
	for _, name := range slices.Sorted(maps.Keys(s.stats.Exits)) {
		status.Exits = append(status.Exits, Exit{Name: name, Packets: s.stats.Exits[name], PacketsPerSecond: s.rates.exit(name)})
	}
	return status
}

// Count counts services, also those whose deletion is not done, and the backends of desired ones.
func Count(desired *store.Snapshot) (services v1alpha1.ServiceCounts, backends v1alpha1.BackendCounts) {
	for i := range desired.Services {
		e := &desired.Services[i]
		services.Panic += one(e.Panic)
		services.Drained += one(e.Drained)
		if status := e.Status; status != nil {
			services.Programmed += one(status.Programmed == e.Revision)
			services.Failed += one(status.Error != "")
			backends.InUse += int32(status.State.InUse())
		}
		for i := range e.Service.Backends {
			backends.Drained += one(e.Service.Backends[i].Drained)
		}
		backends.Total += int32(len(e.Service.Backends))
		for range e.Unhealthy() {
			backends.Unhealthy++
		}
	}
	for _, status := range desired.Deleting {
		services.Failed += one(status.Error != "")
	}
	services.Total = int32(len(desired.Services) + len(desired.Deleting))
	return services, backends
}

// services lists the desired services and those whose deletion is not done, by
// VIP.
func (s *Snapshot) services() []Service {
	services := make([]Service, 0, len(s.desired.Services))
	for _, entry := range s.desired.Services {
		services = append(services, s.service(entry))
	}
	for _, status := range s.desired.Deleting {
		deleted := s.programmed(status.Name, status.VIP, status)
		deleted.Deleting = true
		services = append(services, deleted)
	}
	slices.SortFunc(services, func(a, b Service) int { return a.VIP.Compare(b.VIP) })
	return services
}

// statusOf is the zero value until the data plane has been called for the service.
func statusOf(entry store.Entry) store.Status {
	if entry.Status == nil {
		return store.Status{}
	}
	return *entry.Status
}

// service shows a desired service.
func (s *Snapshot) service(entry store.Entry) Service {
	svc, status := entry.Service, statusOf(entry)
	shown := s.programmed(svc.Name, svc.VIP, &status)
	shown.Forward, shown.Affinity, shown.AffinityTimeout = svc.Forward, svc.Affinity, svc.AffinityTimeout
	shown.DesiredRevision, shown.Programmed = entry.Revision, status.Programmed == entry.Revision
	shown.Backends, shown.BackendsHealthy = len(svc.Backends), entry.Healthy
	shown.Panic, shown.Drained = entry.Panic, entry.Drained
	for _, b := range svc.Backends {
		if b.Weight == 0 {
			shown.BackendsDrained++
		}
	}
	return shown
}

// programmed shows the state of a service in the data plane.
func (s *Snapshot) programmed(name string, vip lb.VIP, status *store.Status) Service {
	return Service{
		Name: name, VIP: vip,
		ProgrammedRevision: status.Programmed,
		DataPlane:          status.State.DataPlane, DataPlaneReason: status.State.Reason,
		Error: status.Error, Attempts: status.Attempts,
		BackendsInUse: status.State.InUse(), RingSize: status.State.RingSize,
		Tracking: s.stats.Services[vip].Tracking,
		Traffic:  s.stats.Services[vip].Traffic,
		Rate:     s.rates.service(vip),
	}
}

// backendsOf lists the desired backends, and while the desired revision is not
// programmed also those that are balanced instead of them.
func (s *Snapshot) backendsOf(entry store.Entry) []Backend {
	svc, status := entry.Service, statusOf(entry)
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
		shown := s.backend(svc, b, state, status.State.RingSize)
		shown.Weight = entry.Configured.Backends[i].Weight
		shown.Health = healthOf(entry, b.ID())
		switch {
		case shown.Weight == 0 || b.Weight > 0 || b.Drained || b.Down:
		case b.Backup && !entry.OnBackups:
			shown.Reason = "backup"
		case shown.Health.Reason != "":
			shown.Reason = "its first checks failed"
		default:
			shown.Reason = "not probed yet"
		}
		list = append(list, shown)
	}
	for id, state := range states {
		state.Reason = cmp.Or(state.Reason, "no longer desired")
		list = append(list, s.backend(svc, lb.Backend{Address: id.Addr(), Port: id.Port()}, state, status.State.RingSize))
	}
	slices.SortFunc(list, func(a, b Backend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
	return list
}

func (s *Snapshot) backend(svc *lb.Service, b lb.Backend, state dataplane.BackendState, ringSize int) Backend {
	traffic, _ := s.stats.Services[svc.VIP].Backend(b.ID())
	shown := Backend{
		Service: svc.Name, VIP: svc.VIP,
		Address: b.Address, Port: b.Port, Weight: b.Weight, Drained: b.Drained,
		Health: Health{State: HealthUnchecked},
		InUse:  state.InUse, Reason: state.Reason, NextHop: state.NextHop,
		RingEntries: state.RingEntries,
		Traffic:     traffic,
		Rate:        s.rates.backend(svc.VIP, b.ID()),
	}
	if ringSize > 0 {
		shown.Share = float64(state.RingEntries) / float64(ringSize)
	}
	return shown
}

// healthOf returns the health of a backend of a service.
func healthOf(entry store.Entry, id lb.BackendID) Health {
	state, judged := entry.Health[id]
	h := Health{Reason: state.Reason, Since: state.Since, Took: state.Took}
	switch {
	case entry.Configured.Health == nil:
		return Health{State: HealthUnchecked}
	case !judged || !state.Known:
		h.State = HealthChecking
	case state.Healthy:
		h.State = HealthHealthy
	default:
		h.State = HealthUnhealthy
	}
	return h
}
