// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Target is a target of a drain: a backend of a service, a whole service
// if no backend is given, and the node if neither is. Services are named, as
// operators do, so a drain outlasts a change of the VIP.
type Target struct {
	Service string `json:"service,omitempty"`
	// Backend has port 0 in a request that means all backends at its address.
	Backend lb.BackendID `json:"backend,omitzero"`
}

// String is "node", "web", "web 10.0.0.21" or "web 10.0.0.21:80".
func (t Target) String() string {
	switch {
	case t == Target{}:
		return "node"
	case !t.Backend.Addr().IsValid():
		return t.Service
	case t.Backend.Port() == 0:
		return t.Service + " " + t.Backend.Addr().String()
	}
	return t.Service + " " + t.Backend.String()
}

// Covers reports whether t, as an operator named it, includes the complete target
// o.
func (t Target) Covers(o Target) bool {
	if t.Service != o.Service || t.Backend.Addr() != o.Backend.Addr() {
		return false
	}
	return t.Backend.Port() == 0 || t.Backend == o.Backend
}

// Compare orders targets: the node, then services by name, each before its
// backends.
func (t Target) Compare(o Target) int {
	return cmp.Or(cmp.Compare(t.Service, o.Service), t.Backend.Compare(o.Backend))
}

// Drain keeps new flows from a target. The node's own only shows in the snapshot:
// packets that arrive are balanced all the same.
type Drain struct {
	Target
	Since time.Time `json:"since"`
}

// Drain adds drains; a target that is drained already keeps its time. The target
// may be unknown yet: it is drained when it appears.
func (s *Store) Drain(drains ...Drain) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, concerned := slices.Clone(s.current.Drains), map[string]bool{}
	for _, d := range drains {
		if at, drained := drainOf(next, d.Target); !drained {
			next, concerned[d.Service] = slices.Insert(next, at, d), true
		}
	}
	return s.redrain(next, concerned)
}

// Undrain removes the drains of targets; there need not be any.
func (s *Store) Undrain(targets ...Target) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, concerned := slices.Clone(s.current.Drains), map[string]bool{}
	for _, t := range targets {
		if at, drained := drainOf(next, t); drained {
			next, concerned[t.Service] = slices.Delete(next, at, at+1), true
		}
	}
	return s.redrain(next, concerned)
}

// redrain merges the services again whose drains differ.
func (s *Store) redrain(drains []Drain, concerned map[string]bool) Snapshot {
	if len(concerned) == 0 {
		return s.current
	}
	next := s.next(0)
	next.Drains = drains
	if s.current.Revision == 0 {
		next.Revision = 0 // the desired services are still unknown
	}
	for i := range next.Services {
		if e := &next.Services[i]; concerned[e.Configured.Name] {
			next.merge(e)
		}
	}
	return s.replace(next)
}

// drainOf returns the place of a target's drain in a sorted list, and whether it
// is there.
func drainOf(drains []Drain, t Target) (at int, drained bool) {
	return slices.BinarySearchFunc(drains, t, func(d Drain, t Target) int { return d.Compare(t) })
}

// Draining returns the drain of a target.
func (s Snapshot) Draining(t Target) (Drain, bool) {
	at, drained := drainOf(s.Drains, t)
	if !drained {
		return Drain{}, false
	}
	return s.Drains[at], true
}
