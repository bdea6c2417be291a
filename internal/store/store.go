// SPDX-License-Identifier: Apache-2.0

// Package store holds the desired services and their status.
//
// The agent's intake sets services and verdicts of health checks, operators set
// drains, and reconcile sets each service's status in the data plane. The store
// merges them into immutable snapshots, which reconcile, announce and observe
// watch. Unchanged services keep their revision, so consumers only process entries
// whose revision changed.
package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/wait"
)

// Store holds the current snapshot. Its methods may be called from several
// goroutines.
type Store struct {
	mu      sync.Mutex
	current Snapshot
	// statuses are reconcile's, also of services that are no longer desired.
	statuses map[lb.VIP]*Status
	// published is the current snapshot, for readers.
	published wait.Value[Snapshot]
}

// New returns a store at revision 0.
func New() *Store {
	return &Store{statuses: map[lb.VIP]*Status{}}
}

// Set replaces the desired services and returns the new snapshot, or the
// current one if nothing differs. It refuses the whole set if two services have
// the same VIP or the same name. The order of services, and of a service's
// backends, has no meaning. Verdicts are applied in the same step, as by ApplyVerdicts, so
// that a new backend that counts as unhealthy until its first probe never gets flows
// before. Backends must not be changed afterwards: they aren't copied if they are sorted.
func (s *Store) Set(services []lb.Service, verdicts ...health.Verdict) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := make([]lb.VIP, len(s.current.Services))
	for i, e := range s.current.Services {
		removed[i] = e.Configured.VIP
	}
	return s.apply(entriesOf(services), removed, byService(verdicts))
}

// Update replaces the services with the VIPs of the changed ones, adds services with
// new VIPs, and removes services with the removed VIPs; other services stay as they
// are. A VIP that is in both lists is changed. It refuses the whole change if a VIP or
// a name would occur twice.
func (s *Store) Update(changed []lb.Service, removed []lb.VIP, verdicts ...health.Verdict) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(entriesOf(changed), removed, byService(verdicts))
}

// SetIncomplete says whether more services are desired, which aren't known yet.
func (s *Store) SetIncomplete(incomplete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Incomplete != incomplete {
		s.current.Incomplete = incomplete
		s.published.Set(s.current)
	}
}

// apply replaces the services of entries, and removes the others that are removed.
func (s *Store) apply(entries []Entry, removed []lb.VIP, news map[lb.VIP]states) (Snapshot, error) {
	changed, gone := make(map[lb.VIP]bool, len(entries)), make(map[lb.VIP]bool, len(removed))
	for _, e := range entries {
		changed[e.Configured.VIP] = true
	}
	for _, vip := range removed {
		gone[vip] = !changed[vip]
	}
	next, differs := s.next(len(entries)), s.current.Revision == 0
	if len(gone) > 0 {
		next.Services = slices.DeleteFunc(next.Services, func(e Entry) bool { return gone[e.Configured.VIP] })
	}
	differs = differs || len(next.Services) < len(s.current.Services)
	if err := checkDistinct(entries, next.Services, changed); err != nil {
		return Snapshot{}, err
	}
	var added []Entry
	for i := range entries {
		e := &entries[i]
		e.Status = s.statuses[e.Configured.VIP]
		at, found := next.find(e.Configured.VIP)
		if !found {
			next.carryOver(e, nil, news[e.Configured.VIP])
			added = append(added, *e)
			continue
		}
		before := next.Services[at]
		if next.carryOver(e, &before, news[e.Configured.VIP]) {
			next.Services[at], differs = *e, true
		}
	}
	if !differs && added == nil {
		return s.current, nil
	}
	if len(added) == 1 { // the usual change is fast with many services
		at, _ := next.find(added[0].Configured.VIP)
		next.Services = slices.Insert(next.Services, at, added[0])
	} else if added != nil {
		next.Services = append(next.Services, added...)
		slices.SortFunc(next.Services, func(a, b Entry) int { return a.Configured.VIP.Compare(b.Configured.VIP) })
	}
	return s.replace(next), nil
}

// entriesOf makes entries of services, sorted by VIP.
func entriesOf(services []lb.Service) []Entry {
	entries := make([]Entry, len(services))
	for i := range services {
		svc := services[i]
		svc.Backends = lb.SortBackends(svc.Backends)
		entries[i].Configured = &svc
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Configured.VIP.Compare(b.Configured.VIP) })
	return entries
}

// next returns a copy of the current snapshot with the next revision, and with room for
// more services.
func (s *Store) next(more int) Snapshot {
	next := s.current
	next.Revision++
	next.Services = append(make([]Entry, 0, len(next.Services)+more), next.Services...)
	return next
}

// replace publishes next as the current snapshot.
func (s *Store) replace(next Snapshot) Snapshot {
	if len(next.Deleting) > 0 {
		next.Deleting = slices.DeleteFunc(slices.Clone(next.Deleting), func(d *Status) bool {
			_, desired := next.find(d.VIP)
			return desired
		})
	}
	s.current = next
	s.published.Set(next)
	return next
}

// checkDistinct names all VIPs and names that entries, sorted by VIP, have twice, and the
// names that other services have already, which are not changed.
func checkDistinct(entries, services []Entry, changed map[lb.VIP]bool) error {
	var errs []error
	names := make(map[string]lb.VIP, len(entries))
	for i, e := range entries {
		if i > 0 && e.Configured.VIP == entries[i-1].Configured.VIP {
			errs = append(errs, fmt.Errorf("vip %s: services %q and %q have it", e.Configured.VIP, entries[i-1].Configured.Name, e.Configured.Name))
		}
		if vip, taken := names[e.Configured.Name]; taken {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Configured.Name, vip, e.Configured.VIP))
		}
		names[e.Configured.Name] = e.Configured.VIP
	}
	for _, e := range services {
		if vip, taken := names[e.Configured.Name]; taken && !changed[e.Configured.VIP] {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Configured.Name, e.Configured.VIP, vip))
		}
	}
	return errors.Join(errs...)
}

// carryOver completes the entry of a configured service from the entry that it had
// before, nil if none, and from new verdicts. It reports whether anything differs.
func (s *Snapshot) carryOver(e, before *Entry, news states) (changed bool) {
	same := before != nil && e.Configured.Equal(before.Configured)
	if same {
		*e = *before
	} else if before != nil {
		e.Service, e.Revision, e.Changed, e.Judged = before.Service, before.Revision, before.Changed, before.Judged
		if e.Configured.Health != nil {
			e.Health = maps.Clone(before.Health)
			maps.DeleteFunc(e.Health, func(id lb.BackendID, _ health.State) bool {
				return !slices.ContainsFunc(e.Configured.Backends, func(b lb.Backend) bool { return b.ID() == id })
			})
		}
	}
	if judged := e.applyHealth(news, s.Revision); same && !judged {
		return false
	}
	s.merge(e)
	return true
}

// Snapshot returns the current snapshot.
func (s *Store) Snapshot() Snapshot { return s.published.Get() }

// Watch returns the current snapshot and a channel that is closed when there is
// a newer one. A watcher calls Watch again then; however late it does, it gets
// the newest, and the store never waits for it.
func (s *Store) Watch() (Snapshot, <-chan struct{}) { return s.published.Watch() }
