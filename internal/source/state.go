// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/saved"
)

// State is the state of the connection to an API server and of the objects that are followed.
type State struct {
	// Server is the URL of the API server.
	Server string `json:"server"`
	// Reachable says whether the last request succeeded, Since when that last changed, and
	// LastResponse when the server last responded. Error is why it is unreachable.
	Reachable    bool      `json:"reachable"`
	Since        time.Time `json:"since"`
	LastResponse time.Time `json:"lastResponse,omitzero"`
	Error        string    `json:"error,omitempty"`
	// Synced is when all objects had been read for the first time; zero before.
	Synced time.Time `json:"synced,omitzero"`
	// Restored is when the served state was saved, if it is a restored one; zero otherwise.
	Restored time.Time `json:"restored,omitzero"`
	// Objects is the number of objects for this node.
	Objects int `json:"objects"`
	// Problems are errors of objects, which are not or only partly served because of them, and kinds
	// that the API server doesn't allow to list.
	Problems []v1alpha1.NodeProblem `json:"problems,omitempty"`
}

// Status is the State of a source that follows an API server, and the versions that it has delivered. Start comes
// first, AwaitObjects and SetObjects are called by the source's Run alone, and the others concurrently.
type Status struct {
	log      *slog.Logger
	started  time.Time // by Start
	problems ProblemLog

	mu        sync.Mutex
	state     State
	delivered v1alpha1.ObservedVersions
}

// NewStatus returns the status of a source that has not reached its server yet.
func NewStatus(server string, log *slog.Logger) *Status {
	return &Status{log: log, problems: ProblemLog{Log: log}, state: State{Server: server, Since: time.Now()}}
}

// Start records when the source starts to follow its server.
func (s *Status) Start() { s.started = time.Now() }

// State returns the current state.
func (s *Status) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Responded records a response of a server.
func (s *Status) Responded(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.state.Server, s.state.LastResponse = server, now
	if !s.state.Reachable {
		s.state.Reachable, s.state.Since, s.state.Error = true, now, ""
		s.log.Info("API server reached", "server", server)
	}
}

// Failed records why the API server is unreachable, and reports whether that is new.
func (s *Status) Failed(reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Error == reason {
		return false
	}
	if s.state.Reachable || s.state.Error == "" {
		s.state.Since = time.Now()
	}
	s.state.Reachable, s.state.Error = false, reason
	return true
}

// AwaitObjects waits until all objects are known, which may be so after each signal of wake, or until ctx ends. From
// StartTimeout on it applies the saved state, nil for none, until that is accepted, and returns its services.
func (s *Status) AwaitObjects(ctx context.Context, wake <-chan struct{}, known func() bool, from *saved.State, apply func(Update) error) (restored []lb.Service) {
	var restoreAt time.Time // zero: not
	if from != nil {
		restoreAt = s.started.Add(StartTimeout)
	}
	for rejected := 0; !Await(ctx, wake, restoreAt, known) && ctx.Err() == nil; {
		if err := apply(Update{Whole: true, Changed: from.Services}); err != nil {
			s.log.Error("saved state rejected, retrying", "error", err)
			rejected++
			restoreAt = time.Now().Add(RetryDelay().Delay(rejected))
			continue
		}
		restoreAt, restored = time.Time{}, from.Services
		s.mu.Lock()
		s.state.Restored = from.At
		s.mu.Unlock()
		s.log.Warn("API server unreachable, serving the saved state", "saved", from.At, "services", len(restored))
	}
	return restored
}

// SetObjects records the number of objects and their problems, once all are known, and logs new and solved problems.
func (s *Status) SetObjects(objects int, problems []v1alpha1.NodeProblem) {
	s.mu.Lock()
	if s.state.Synced.IsZero() {
		s.state.Synced = time.Now()
		s.log.Info("all objects read", "duration", s.state.Synced.Sub(s.started).Round(time.Millisecond))
	}
	s.state.Restored, s.state.Problems, s.state.Objects = time.Time{}, problems, objects
	s.mu.Unlock()
	s.problems.Update(problems)
}

// SetDelivered records the newest objects of an update that was accepted.
func (s *Status) SetDelivered(newest v1alpha1.ObservedVersions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delivered = newest
}

// Delivered returns the newest objects of the last update that was accepted.
func (s *Status) Delivered() v1alpha1.ObservedVersions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delivered
}

// File is the state of a configuration file.
type File struct {
	// Path is absolute.
	Path string `json:"path"`
	// Digest is the SHA-256 of the running configuration's bytes in hexadecimal, Loaded
	// when it was read.
	Digest string    `json:"digest"`
	Loaded time.Time `json:"loaded"`
	// Error is the reason for refusing the current file, and Refused the time; both are
	// zero if the file is the running configuration.
	Error   string    `json:"error,omitempty"`
	Refused time.Time `json:"refused,omitzero"`
}
