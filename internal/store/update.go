// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// Update changes some services: it is as Set with all that are desired now, without
// those of the removed VIPs and with the changed ones in the place of those that
// have their VIPs. Only these are looked at. A VIP may be among both: the changed
// service has it then. It refuses the whole change if a VIP or a name would be there
// twice.
func (s *Store) Update(changed []lb.Service, removed []lb.VIP, verdicts ...health.Verdict) (Snapshot, error) {
	entries := entriesOf(changed)
	if _, err := checkDistinct(entries); err != nil {
		return Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.goes(entries, removed)
	if err := s.checkNames(entries, gone); err != nil {
		return Snapshot{}, err
	}
	next, differs := s.next(), s.current.Revision == 0
	next.Services = slices.DeleteFunc(next.Services, func(e Entry) bool { return gone[e.Configured.VIP] != "" })
	differs = differs || len(next.Services) < len(s.current.Services)
	news := byService(verdicts)
	var added []Entry
	for i := range entries {
		e := &entries[i]
		at, found := next.find(e.Configured.VIP)
		if !found {
			next.succeed(e, nil, news[e.Configured.VIP])
			added = append(added, *e)
			continue
		}
		before := next.Services[at]
		if next.succeed(e, &before, news[e.Configured.VIP]) {
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
	s.rename(entries, gone)
	return s.replace(next), nil
}

// goes are the removed services that are desired now and have no successor, by
// name.
func (s *Store) goes(entries []Entry, removed []lb.VIP) map[lb.VIP]string {
	gone := make(map[lb.VIP]string, len(removed))
	for _, vip := range removed {
		if e, found := s.current.Find(vip); found && !among(entries, vip) {
			gone[vip] = e.Configured.Name
		}
	}
	return gone
}

// among reports whether entries, sorted by VIP, have one.
func among(entries []Entry, vip lb.VIP) bool {
	_, found := slices.BinarySearchFunc(entries, vip, func(e Entry, vip lb.VIP) int { return e.Configured.VIP.Compare(vip) })
	return found
}

// checkNames refuses names that services have which stay as they are.
func (s *Store) checkNames(entries []Entry, gone map[lb.VIP]string) error {
	var errs []error
	for _, e := range entries {
		vip, taken := s.names[e.Configured.Name]
		if taken && gone[vip] == "" && !among(entries, vip) {
			errs = append(errs, fmt.Errorf("service %q: the name is taken by vip %s, vip %s can't have it", e.Configured.Name, vip, e.Configured.VIP))
		}
	}
	return errors.Join(errs...)
}

// rename keeps names what the services' are, after the current snapshot's
// successor has been made and before it is the current one.
func (s *Store) rename(entries []Entry, gone map[lb.VIP]string) {
	if s.names == nil {
		s.names = map[string]lb.VIP{}
	}
	for _, name := range gone {
		delete(s.names, name)
	}
	for _, e := range entries {
		if before, found := s.current.Find(e.Configured.VIP); found {
			delete(s.names, before.Configured.Name)
		}
	}
	for _, e := range entries {
		s.names[e.Configured.Name] = e.Configured.VIP
	}
}
