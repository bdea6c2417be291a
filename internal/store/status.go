// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Status is how far the data plane has come with one service. Reconcile writes
// it.
type Status struct {
	VIP  lb.VIP
	Name string
	// Programmed is the revision that the data plane has, 0 if none that this process
	// programmed. It stays at the last one while a newer one fails.
	Programmed uint64
	// Deleting says that the service is no longer desired but not yet deleted.
	Deleting bool
	// Error is why the last attempt failed; empty if it didn't.
	Error string
	// Attempts counts the failed attempts in a row, NextTry is when the next one is due.
	Attempts int
	NextTry  time.Time
	// State is the result of the last successful update; see Programmed.
	State dataplane.Programmed
	// Took is the time of the last call of the data plane.
	Took time.Duration
}

// SetStatus records the statuses of services, and removes the statuses of deleted
// services. It leaves the revision as it is.
func (s *Store) SetStatus(changed []Status, deleted []lb.VIP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.current
	next.Services = slices.Clone(next.Services)
	put := func(vip lb.VIP, status *Status) {
		if at, found := next.find(vip); found {
			next.Services[at].Status = status
		}
	}
	for _, vip := range deleted {
		delete(s.statuses, vip)
		put(vip, nil)
	}
	for i := range changed {
		s.statuses[changed[i].VIP] = &changed[i]
		put(changed[i].VIP, &changed[i])
	}
	next.Deleting = nil
	for _, status := range s.statuses {
		if status.Deleting {
			next.Deleting = append(next.Deleting, status)
		}
	}
	slices.SortFunc(next.Deleting, func(a, b *Status) int { return a.VIP.Compare(b.VIP) })
	s.replace(next)
}

// Statuses returns the statuses of desired services and of services that are being
// deleted, sorted by VIP.
func (s Snapshot) Statuses() []Status {
	var all []Status
	for i := range s.Services {
		if status := s.Services[i].Status; status != nil {
			all = append(all, *status)
		}
	}
	for _, status := range s.Deleting {
		all = append(all, *status)
	}
	slices.SortFunc(all, func(a, b Status) int { return a.VIP.Compare(b.VIP) })
	return all
}
