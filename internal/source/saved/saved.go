// SPDX-License-Identifier: Apache-2.0

// Package saved keeps the last state of a source in a file. An agent serves it that starts while
// the API server is unreachable. The sources that follow an API server call it.
package saved

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/wait"
)

const (
	// delay batches changes. After a save that took longer than a twentieth of it, the pause is
	// pauseFactor times as long as the save.
	delay, pauseFactor = time.Second / 2, 20
	// version is the version of the file's format: an agent reads no other.
	version = 1
)

// State is the saved state, which the next agent serves while the API server is unreachable.
// Sources without routes have only Node and Services.
type State struct {
	Version int       `json:"version"`
	Node    string    `json:"node"`
	ASN     uint32    `json:"asn"`
	At      time.Time `json:"at"`
	// Four and Six are the node's internal addresses.
	Four     netip.Addr   `json:"four"`
	Six      netip.Addr   `json:"six"`
	Services []lb.Service `json:"services"`
	// Identity and ServerVersion are from the file of an API server without a cluster.
	Identity      string `json:"identity,omitempty"`
	ServerVersion string `json:"serverVersion,omitempty"`
	// Peers refer to password files in the same folder.
	Peers    []bgp.Peer   `json:"peers"`
	Policies []bgp.Policy `json:"policies"`
}

// Load reads the state of a node; nil if there is none. Invalid services are removed, and those that
// this agent can't serve, for which check has errors.
func Load(path, node string, check func(*lb.Service) []lb.FieldError) (*State, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Version != version || s.Node != node {
		return nil, fmt.Errorf("%s: of version %d and node %q: want %d and %q", path, s.Version, s.Node, version, node)
	}
	s.Services = slices.DeleteFunc(s.Services, func(svc lb.Service) bool { return len(svc.Check())+len(check(&svc)) > 0 })
	return s, nil
}

// Write replaces the file atomically.
func (s *State) Write(path string) error {
	s.Version = version
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o600)
}

// Saver saves a state that changes.
type Saver struct {
	// Earlier is the state of an earlier agent; nil for none that is usable.
	Earlier *State
	path    string
	current func() *State
	log     *slog.Logger
	changed chan struct{}
	// saving serializes writing the file.
	saving sync.Mutex
}

// Open returns a saver of the state that current returns, with the state of an earlier agent: see Load.
func Open(path, node string, check func(*lb.Service) []lb.FieldError, current func() *State, log *slog.Logger) *Saver {
	earlier, err := Load(path, node, check)
	if err != nil {
		log.Warn("saved state not usable", "error", err)
	}
	return &Saver{Earlier: earlier, path: path, current: current, log: log, changed: make(chan struct{}, 1)}
}

// Forget removes the file, after Run has ended.
func (s *Saver) Forget() error {
	if err := os.Remove(s.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Changed says that there is a state to save.
func (s *Saver) Changed() { wait.Signal(s.changed) }

// Run saves the state after changes, and once more when ctx ends.
func (s *Saver) Run(ctx context.Context) {
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			s.Save()
			return
		case <-s.changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(delay, pauseFactor*took)):
		}
		began := time.Now()
		s.Save()
		took = time.Since(began)
	}
}

// Save writes the current state. An error is only logged.
func (s *Saver) Save() {
	s.saving.Lock() // before reading the state, so that the last writer has the newest
	defer s.saving.Unlock()
	state := s.current()
	state.At = time.Now()
	if err := state.Write(s.path); err != nil {
		s.log.Error("state not saved", "error", err)
	}
}
