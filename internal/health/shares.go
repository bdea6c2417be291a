// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"slices"
	"time"
)

// greed is how many probes a tenant may have in flight for each that there is still room for,
// besides the last one.
const greed = 8

// shares gives the room for probes in flight to tenants: a probe begins only if its tenant has
// fewer in flight than greed times the room that is left (the dynamic thresholds of Choudhury
// and Hahne, 1998). So one tenant whose backends never answer gets 8/9 of the room, and n such
// tenants get 8/(8n+1) each. The last place is for a tenant that has no probe in flight.
type shares struct {
	free    int
	tenants map[string]*tenant
	// turns are the tenants with probes that wait for room, the next one first.
	turns []*tenant
}

// tenant is a namespace, or a service of a file.
type tenant struct {
	name     string
	inFlight int
	waiting  []*target
}

func newShares(room int) shares { return shares{free: room, tenants: map[string]*tenant{}} }

// tenantOf names the tenant of a target.
func tenantOf(t *target) string { return cmp.Or(t.service.Namespace, t.service.Name) }

// wait adds a target whose probe is due.
func (s *shares) wait(t *target) {
	name := tenantOf(t)
	who := s.tenants[name]
	if who == nil {
		who = &tenant{name: name}
		s.tenants[name] = who
	}
	t.tenant = who
	if who.waiting = append(who.waiting, t); len(who.waiting) == 1 {
		s.turns = append(s.turns, who)
	}
}

// next returns a waiting target whose probe may begin; nil if there is none.
func (s *shares) next() *target {
	for range len(s.turns) {
		who := s.turns[0]
		s.turns = s.turns[1:]
		if who.inFlight >= max(greed*(s.free-1), min(s.free, 1)) {
			s.turns = append(s.turns, who)
			continue
		}
		t := who.waiting[0]
		if who.waiting = who.waiting[1:]; len(who.waiting) > 0 {
			s.turns = append(s.turns, who)
		}
		who.inFlight++
		s.free--
		return t
	}
	return nil
}

// done returns the room of a probe that is over.
func (s *shares) done(who *tenant) {
	s.free++
	if who.inFlight--; who.inFlight == 0 && len(who.waiting) == 0 {
		delete(s.tenants, who.name)
	}
}

// drop removes all targets that wait.
func (s *shares) drop() (dropped []*target) {
	for _, who := range s.turns {
		dropped = slices.Concat(dropped, who.waiting)
		who.waiting = nil
	}
	s.turns = nil
	return dropped
}

// late reports whether a probe that begins at a time begins too late to find a dead backend when
// its check promises that.
func (t *target) late(now time.Time) bool { return now.Sub(t.due) > t.check.Interval/2 }
