// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// Update replaces the services with the VIPs of the changed ones, adds those whose
// VIPs are new, and removes those of the removed VIPs; other services stay as they
// are. A VIP that is in both lists is changed. It refuses the whole change if a VIP or
// a name would occur twice.
func (s *Store) Update(changed []lb.Service, removed []lb.VIP, verdicts ...health.Verdict) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(entriesOf(changed), removed, byService(verdicts))
}

// apply replaces the services of entries, and removes the others that are removed.
func (s *Store) apply(entries []Entry, removed []lb.VIP, news map[lb.VIP]states) (Snapshot, error) {
	names, err := checkDistinct(entries)
	if err != nil {
		return Snapshot{}, err
	}
	gone := make(map[lb.VIP]bool, len(removed))
	for _, vip := range removed {
		gone[vip] = true
	}
	for _, e := range entries {
		delete(gone, e.Configured.VIP)
	}
	next, differs := s.next(), s.current.Revision == 0
	next.Services = slices.DeleteFunc(next.Services, func(e Entry) bool { return gone[e.Configured.VIP] })
	differs = differs || len(next.Services) < len(s.current.Services)
	if err := checkNames(next.Services, names); err != nil {
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
	if added != nil {
		next.Services = append(next.Services, added...)
		slices.SortFunc(next.Services, func(a, b Entry) int { return a.Configured.VIP.Compare(b.Configured.VIP) })
	}
	return s.replace(next), nil
}

// checkNames refuses names that services which stay as they are have already. Names
// has the VIPs of those that change.
func checkNames(services []Entry, names map[string]lb.VIP) error {
	changed := make(map[lb.VIP]bool, len(names))
	for _, vip := range names {
		changed[vip] = true
	}
	var errs []error
	for _, e := range services {
		if vip, taken := names[e.Configured.Name]; taken && !changed[e.Configured.VIP] {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Configured.Name, e.Configured.VIP, vip))
		}
	}
	return errors.Join(errs...)
}
