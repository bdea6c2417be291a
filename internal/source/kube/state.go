// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// State is how well the API server is followed.
type State struct {
	// Server is its URL.
	Server string
	// Reachable says that it answered last, Since when that became so or ceased to
	// be, and Heard when it said something last. Error is why it can't be reached.
	Reachable    bool
	Since, Heard time.Time
	Error        string
	// Synced is when every list had been read for the first time; zero before.
	Synced time.Time
	// Restored is when what is served was saved, before Synced; zero otherwise.
	Restored time.Time
	// Objects counts the Services and LoadBalancers that are for this node.
	Objects  int
	Problems []Problem
}

// State returns how well the API server is followed.
func (s *Source) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// reached takes note that the API server has answered. It is called with the lock
// held.
func (s *Source) reached(now time.Time) {
	s.state.Heard = now
	if s.state.Reachable {
		return
	}
	s.state.Reachable, s.state.Since, s.state.Error = true, now, ""
	s.Log.Info("API server reached", "server", s.state.Server)
}

func (s *Source) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached(time.Now())
}

// lost takes note that a list can't be followed. What is forbidden won't be allowed
// soon: a Secret that can't be read is as one that isn't there.
func (s *Source) lost(f followed, err error) {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the same for all lists
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if apierrors.IsForbidden(err) {
		s.secretListed(f.kind, f.name)
		s.signal()
	}
	if s.state.Error == err.Error() {
		return
	}
	if s.state.Reachable || s.state.Error == "" {
		s.state.Since = time.Now()
	}
	s.state.Reachable, s.state.Error = false, err.Error()
	s.Log.Warn("API server can't be followed", "server", s.state.Server, "kind", f.kind, "error", err)
}

// observeWorld takes note of what the world is like after it has changed, and logs
// problems that come and go.
func (s *Source) observeWorld() {
	s.mu.Lock()
	problems := s.world.Problems()
	if s.state.Synced.IsZero() {
		s.state.Synced = time.Now()
		s.Log.Info("objects of the API server known", "took", s.state.Synced.Sub(s.started).Round(time.Millisecond))
	}
	s.state.Restored, s.state.Problems, s.state.Objects = time.Time{}, problems, s.world.Count()
	ports := s.world.HealthPorts()
	before := s.told
	s.told = make(map[Problem]bool, len(problems))
	for _, p := range problems {
		s.told[p] = true
	}
	now := s.told
	s.mu.Unlock()
	for p := range now {
		if !before[p] {
			s.Log.Warn("object not served as it is written", "object", p.Object.String(), "problem", p.Text)
		}
	}
	for p := range before {
		if !now[p] {
			s.Log.Info("problem solved", "object", p.Object.String(), "problem", p.Text)
		}
	}
	s.checks.set(ports)
}
