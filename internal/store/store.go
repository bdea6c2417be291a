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
	// names has the VIP of each service of the current snapshot.
	names map[string]lb.VIP
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
	entries := entriesOf(services)
	names, err := checkDistinct(entries)
	if err != nil {
		return Snapshot{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	next := Snapshot{Revision: s.current.Revision + 1, Services: entries, Drains: s.current.Drains}
	if !next.inherit(s.current, byService(verdicts)) {
		return s.current, nil
	}
	s.names = names
	return s.replace(next), nil
}

// entriesOf makes entries of services, sorted by VIP.
func entriesOf(services []lb.Service) []Entry {
	entries := make([]Entry, len(services))
	for i := range services {
		svc := services[i]
		svc.Backends = slices.SortedFunc(slices.Values(svc.Backends), func(a, b lb.Backend) int {
			return a.ID().Compare(b.ID())
		})
		entries[i].Configured = &svc
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Configured.VIP.Compare(b.Configured.VIP) })
	return entries
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
// twice. It returns the VIP of each name.
func checkDistinct(entries []Entry) (names map[string]lb.VIP, err error) {
	var errs []error
	names = make(map[string]lb.VIP, len(entries))
	for i, e := range entries {
		if i > 0 && e.Configured.VIP == entries[i-1].Configured.VIP {
			errs = append(errs, fmt.Errorf("vip %s: services %q and %q have it", e.Configured.VIP, entries[i-1].Configured.Name, e.Configured.Name))
		}
		if vip, taken := names[e.Configured.Name]; taken {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Configured.Name, vip, e.Configured.VIP))
		}
		names[e.Configured.Name] = e.Configured.VIP
	}
	return names, errors.Join(errs...)
}

// inherit gives unchanged services the entries that they have in old and merges
// the others, and those on which there is news. It reports whether anything
// differs.
func (s *Snapshot) inherit(old Snapshot, states map[lb.VIP]states) (changed bool) {
	changed = old.Revision == 0 || len(s.Services) != len(old.Services)
	for i := range s.Services {
		e := &s.Services[i]
		var before *Entry
		if at, found := old.find(e.Configured.VIP); found {
			before = &old.Services[at]
		}
		if s.succeed(e, before, states[e.Configured.VIP]) {
			changed = true
		}
	}
	return changed
}

// succeed makes the entry of a configured service what follows from the one that it
// had before, nil if none, and from news of its backends. It reports whether
// anything differs.
func (s *Snapshot) succeed(e, before *Entry, news states) (changed bool) {
	same := before != nil && e.Configured.Equal(before.Configured)
	if same {
		*e = *before
	} else if before != nil {
		e.Service, e.Revision, e.Changed, e.Judged = before.Service, before.Revision, before.Changed, before.Judged
		e.keepVerdicts(before.Health)
	}
	if judged := e.judge(news, s.Revision); same && !judged {
		return false
	}
	s.merge(e)
	return true
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
