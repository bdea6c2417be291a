// SPDX-License-Identifier: Apache-2.0

// Package store holds which services are desired, and is the only one to
// change that.
//
// Sources hand it whole sets; reconcile, and whoever shows the state, take
// immutable snapshots from it. Revisions tell what changed: a service that is
// the same as before keeps its revision, so those behind the store need to look
// at nothing else.
package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Entry is one desired service.
type Entry struct {
	// Service is immutable. It is the same pointer as long as the service is the
	// same. Its backends are sorted by ID.
	Service *lb.Service
	// Revision is the snapshot's at which the service last changed, Changed the
	// time of it.
	Revision uint64
	Changed  time.Time
}

// Snapshot is the desired state at one revision. It is immutable.
type Snapshot struct {
	// Revision grows by one with each change. 0 means that nobody has said yet
	// what is desired, which differs from wanting no services.
	Revision uint64
	// Services are sorted by VIP.
	Services []Entry
}

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
// backends, has no meaning.
func (s *Store) Set(services []lb.Service) (Snapshot, error) {
	entries := make([]Entry, len(services))
	for i := range services {
		svc := services[i]
		svc.Backends = slices.SortedFunc(slices.Values(svc.Backends), func(a, b lb.Backend) int {
			return a.ID().Compare(b.ID())
		})
		entries[i].Service = &svc
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Service.VIP.Compare(b.Service.VIP) })
	if err := checkDistinct(entries); err != nil {
		return Snapshot{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	next := Snapshot{Revision: s.current.Revision + 1, Services: entries}
	if !next.inherit(s.current) {
		return s.current, nil
	}
	s.current = next
	close(s.changed)
	s.changed = make(chan struct{})
	return next, nil
}

// checkDistinct names all VIPs and names that entries, sorted by VIP, have
// twice.
func checkDistinct(entries []Entry) error {
	var errs []error
	names := map[string]lb.VIP{}
	for i, e := range entries {
		if i > 0 && e.Service.VIP == entries[i-1].Service.VIP {
			errs = append(errs, fmt.Errorf("vip %s: services %q and %q have it", e.Service.VIP, entries[i-1].Service.Name, e.Service.Name))
		}
		if vip, taken := names[e.Service.Name]; taken {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Service.Name, vip, e.Service.VIP))
		}
		names[e.Service.Name] = e.Service.VIP
	}
	return errors.Join(errs...)
}

// inherit gives unchanged services the entries that they have in old and the
// others the revision of s and the present time. It reports whether anything
// differs.
func (s *Snapshot) inherit(old Snapshot) (changed bool) {
	changed = old.Revision == 0 || len(s.Services) != len(old.Services)
	now := time.Now()
	for i := range s.Services {
		e := &s.Services[i]
		e.Revision, e.Changed = s.Revision, now
		at, found := slices.BinarySearchFunc(old.Services, e.Service.VIP, func(e Entry, vip lb.VIP) int {
			return e.Service.VIP.Compare(vip)
		})
		if found && e.Service.Equal(old.Services[at].Service) {
			*e = old.Services[at]
		} else {
			changed = true
		}
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
