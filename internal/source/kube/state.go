// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"net/url"
	"slices"
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
	Objects int
	// Problems are those of objects, and of kinds that the API server doesn't let be
	// followed.
	Problems []Problem
}

// State returns how well the API server is followed.
func (s *Source) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	var refused []Problem
	for list, why := range s.refused {
		refused = append(refused, Problem{list, "can't be followed: " + why})
	}
	slices.SortFunc(refused, func(a, b Problem) int { return a.Object.Compare(b.Object) })
	state.Problems = slices.Concat(refused, state.Problems)
	return state
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

// watched takes note that a list is followed.
func (s *Source) watched(f followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached(time.Now())
	if s.refused[f.list()] != "" {
		delete(s.refused, f.list())
		s.Log.Info("list followed again", "list", f.list().String())
	}
}

// refusal takes note of why an API server that answers doesn't let a list be followed.
// What is forbidden won't be allowed soon: a Secret that can't be read is as one that
// isn't there.
func (s *Source) refusal(f followed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached(time.Now())
	if apierrors.IsForbidden(err) {
		s.secretListed(f.kind, f.name)
		s.signal()
	}
	if s.refused[f.list()] == err.Error() || s.followedNoMore(f) {
		return
	}
	s.refused[f.list()] = err.Error()
	s.Log.Warn("list can't be followed", "list", f.list().String(), "error", err)
}

// followedNoMore reports whether a list is a Secret's that nobody names any more. It is
// called with the lock held.
func (s *Source) followedNoMore(f followed) bool {
	return f.kind == KindSecret && s.secrets[f.name] == nil
}

// lost takes note that a list can't be followed: because the API server doesn't answer,
// or because it says why not. That a version is too old is no news: all is listed then.
func (s *Source) lost(f followed, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		s.refusal(f, answer)
		return
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the same for all lists
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
