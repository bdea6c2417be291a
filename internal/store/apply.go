// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// ApplyVerdicts applies verdicts, of which the last on a backend counts. Verdicts on unknown
// backends are ignored. Only the services of the verdicts are processed.
func (s *Store) ApplyVerdicts(verdicts []health.Verdict) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.next(0), false
	for vip, news := range byService(verdicts) {
		at, found := next.find(vip)
		if found && next.Services[at].applyHealth(news, next.Revision) {
			next.merge(&next.Services[at])
			changed = true
		}
	}
	if !changed {
		return s.current
	}
	return s.replace(next)
}

// states are the health of a service's backends.
type states = map[lb.BackendID]health.State

func byService(verdicts []health.Verdict) map[lb.VIP]states {
	services := map[lb.VIP]states{}
	for _, v := range verdicts {
		if services[v.VIP] == nil {
			services[v.VIP] = states{}
		}
		services[v.VIP][v.Backend] = v.State
	}
	return services
}

// applyHealth records the health of the service's backends at a revision, and reports
// whether anything differs.
func (e *Entry) applyHealth(found states, revision uint64) (news bool) {
	known := e.Health
	for _, b := range e.Configured.Backends {
		state, judged := found[b.ID()]
		before, was := known[b.ID()]
		if !judged || was && sameState(state, before) {
			continue
		}
		if !news {
			e.Health = states{}
			maps.Copy(e.Health, known)
		}
		e.Health[b.ID()], news = state, true
		e.Judged = revision
	}
	return news
}

// sameState compares all but how long the last probe took, which always
// differs.
func sameState(a, b health.State) bool {
	since := a.Since.Equal(b.Since)
	a.Took, b.Took, a.Since, b.Since = 0, 0, time.Time{}, time.Time{}
	return since && a == b
}
