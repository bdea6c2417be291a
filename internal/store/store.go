// SPDX-License-Identifier: Apache-2.0

// Package store holds which services are desired, and is the only one to
// change that.
//
// Sources hand it whole sets, health checks verdicts, and operators drains; it
// merges them, and reconcile, and whoever shows the state, take immutable
// snapshots from it. Revisions tell what changed: a service that comes out as it
// was keeps its revision, so those behind the store need to look at nothing
// else.
package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// Store holds the current snapshot. Its methods may be called from several
// goroutines.
type Store struct {
	mu      sync.Mutex
	current Snapshot
	// changed is closed when current is replaced.
	changed chan struct{}
}

// New returns a store at revision 0.
func New() *Store {
	return &Store{changed: make(chan struct{})}
}

// Set replaces the desired services and returns the new snapshot, or the
// current one if nothing differs. It refuses the whole set if two services have
// the same VIP or the same name. The order of services, and of a service's
// backends, has no meaning. Verdicts are taken into account in the same step, as
// by Judge: so a new backend that counts as dead until it has been probed is never
// seen alive before.
func (s *Store) Set(services []lb.Service, verdicts ...health.Verdict) (Snapshot, error) {
	entries := make([]Entry, len(services))
	for i := range services {
		svc := services[i]
		svc.Backends = slices.SortedFunc(slices.Values(svc.Backends), func(a, b lb.Backend) int {
			return a.ID().Compare(b.ID())
		})
		entries[i].Configured = &svc
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Configured.VIP.Compare(b.Configured.VIP) })
	if err := checkDistinct(entries); err != nil {
		return Snapshot{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	next := Snapshot{Revision: s.current.Revision + 1, Services: entries, Drains: s.current.Drains}
	if !next.inherit(s.current, byService(verdicts)) {
		return s.current, nil
	}
	return s.replace(next), nil
}

// next begins the snapshot after the current one, equal to it.
func (s *Store) next() Snapshot {
	next := s.current
	next.Revision++
	next.Services = slices.Clone(next.Services)
	return next
}

// replace makes next the current snapshot and tells those who watch.
func (s *Store) replace(next Snapshot) Snapshot {
	s.current = next
	close(s.changed)
	s.changed = make(chan struct{})
	return next
}

// checkDistinct names all VIPs and names that entries, sorted by VIP, have
// twice.
func checkDistinct(entries []Entry) error {
	var errs []error
	names := map[string]lb.VIP{}
	for i, e := range entries {
		if i > 0 && e.Configured.VIP == entries[i-1].Configured.VIP {
			errs = append(errs, fmt.Errorf("vip %s: services %q and %q have it", e.Configured.VIP, entries[i-1].Configured.Name, e.Configured.Name))
		}
		if vip, taken := names[e.Configured.Name]; taken {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Configured.Name, vip, e.Configured.VIP))
		}
		names[e.Configured.Name] = e.Configured.VIP
	}
	return errors.Join(errs...)
}

// inherit gives unchanged services the entries that they have in old and merges
// the others, and those on which there is news. It reports whether anything
// differs.
func (s *Snapshot) inherit(old Snapshot, states map[lb.VIP]states) (changed bool) {
	changed = old.Revision == 0 || len(s.Services) != len(old.Services)
	for i := range s.Services {
		e := &s.Services[i]
		at, found := old.find(e.Configured.VIP)
		same := found && e.Configured.Equal(old.Services[at].Configured)
		if same {
			*e = old.Services[at]
		} else if found {
			before := old.Services[at]
			e.Service, e.Revision, e.Changed, e.Judged = before.Service, before.Revision, before.Changed, before.Judged
			e.keepVerdicts(before.Health)
		}
		if news := e.judge(states[e.Configured.VIP], s.Revision); same && !news {
			continue
		}
		changed = true
		s.merge(e)
	}
	return changed
}

// Snapshot returns the current snapshot.
func (s *Store) Snapshot() Snapshot {
	snapshot, _ := s.Watch()
	return snapshot
}

// Watch returns the current snapshot and a channel that is closed when there is
// a newer one. A watcher calls Watch again then; however late it comes, it gets
// the newest, and the store never waits for it.
func (s *Store) Watch() (Snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}
