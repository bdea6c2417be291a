// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// merge computes the entry's Service from the configured service, the verdicts on its
// backends and the snapshot's drains. An unchanged service keeps its pointer and its
// revision.
func (s *Snapshot) merge(e *Entry) {
	_, e.Drained = drainOf(s.Drains, Target{Service: e.Configured.Name})
	drained := func(b lb.Backend) bool {
		if len(s.Drains) == 0 || e.Drained {
			return e.Drained
		}
		_, drained := drainOf(s.Drains, Target{Service: e.Configured.Name, Backend: b.ID()})
		return drained
	}
	e.countHealthy(drained)
	merged := e.Configured
	for i, b := range e.Configured.Backends {
		effective := e.effective(b, drained(b))
		if effective == b {
			continue
		}
		if merged == e.Configured {
			merged = new(*e.Configured)
			merged.Backends = slices.Clone(merged.Backends)
		}
		merged.Backends[i] = effective
	}
	if !merged.Equal(e.Service) {
		e.Service, e.Revision, e.Changed = merged, s.Revision, time.Now()
	}
}

// effective is a configured backend with its health and its drain applied.
func (e *Entry) effective(b lb.Backend, drained bool) lb.Backend {
	if drained {
		b.Weight, b.Drained = 0, true
	}
	if b.Backup && !e.OnBackups {
		b.Weight = 0
	}
	if e.Panic && b.Backup == e.OnBackups {
		return b
	}
	if !e.healthy(b) {
		if b.Down = e.lost(b); !b.Down {
			b.Weight = 0
		}
	}
	if state, judged := e.Health[b.ID()]; judged && e.Configured.Health != nil && state.Share < lb.WholeShare {
		b.Share = state.Share
	}
	return b
}

// lost reports whether the flows of an unhealthy backend go to other backends. A
// backend that has not been probed yet may have flows from before it left the service.
// And a TCP server with weight 0 may refuse new connections because it is shutting
// down, and still serve its existing ones: as long as it responds at all, its kernel
// resets connections that it no longer serves. UDP has no such signal.
func (e *Entry) lost(b lb.Backend) bool {
	state := e.Health[b.ID()]
	leaves := b.Weight == 0 && e.Configured.Protocol == lb.TCP
	return state.Known && (state.Silent || !leaves)
}

// healthy reports whether no verdict found a backend unhealthy. Without a verdict it
// is healthy.
func (e *Entry) healthy(b lb.Backend) bool {
	state, judged := e.Health[b.ID()]
	return e.Configured.Health == nil || !judged || state.Healthy
}

// tier counts the backends with weight that are backups, or those that aren't.
type tier struct{ wanted, living int }

// countHealthy counts the healthy backends, and decides whether backups are used, and whether
// so few of the backends with weight that are used then are healthy that health is ignored.
func (e *Entry) countHealthy(drained func(lb.Backend) bool) {
	var primaries, backups tier
	e.Healthy = 0
	for _, b := range e.Configured.Backends {
		healthy := e.healthy(b)
		if healthy {
			e.Healthy++
		}
		if b.Weight == 0 || drained(b) {
			continue
		}
		of := &primaries
		if b.Backup {
			of = &backups
		}
		of.wanted++
		if healthy {
			of.living++
		}
	}
	e.OnBackups = primaries.living == 0 && (backups.living > 0 || primaries.wanted == 0 && backups.wanted > 0)
	used := primaries
	if e.OnBackups {
		used = backups
	}
	check := e.Configured.Health
	e.Panic = check != nil && used.wanted > 0 && health.Panic(used.living, used.wanted, check.PanicThreshold)
}
