// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// saveDelay is between a change and its being saved: what comes in it is saved
	// with it.
	saveDelay = time.Second / 2
	stateFile = "state.json"
	// stateVersion is that of the file's form: an agent reads no other.
	stateVersion = 1
)

// saved is what the next agent serves if the API server is away.
type saved struct {
	Version int       `json:"version"`
	Node    string    `json:"node"`
	ASN     uint32    `json:"asn"`
	At      time.Time `json:"at"`
	// Four and Six are the node's internal addresses.
	Four     netip.Addr   `json:"four"`
	Six      netip.Addr   `json:"six"`
	Services []lb.Service `json:"services"`
	// Peers name the files of passwords, which lie beside this one.
	Peers    []bgp.Peer   `json:"peers"`
	Policies []bgp.Policy `json:"policies"`
}

// makeDir makes a folder that only the agent's user sees.
func makeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// load reads what was saved; nil if nothing was. Services that this agent could
// not serve are left out.
func load(dir string, c Config) (*saved, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &saved{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	if s.Version != stateVersion || s.Node != c.Node {
		return nil, fmt.Errorf("%s: of version %d and node %q: want %d and %q", filepath.Join(dir, stateFile), s.Version, s.Node, stateVersion, c.Node)
	}
	if s.ASN != c.ASN {
		s.Peers = nil // they were chosen for another speaker
	}
	s.Services = slices.DeleteFunc(s.Services, func(svc lb.Service) bool {
		return len(svc.Check()) > 0 || len(c.Limits.Check(&svc)) > 0
	})
	return s, nil
}

// keepSaved saves what has changed, a moment later and beside all other work, and
// once more when ctx ends.
func (s *Source) keepSaved(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.save()
			return
		case <-s.unsaved:
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveDelay):
		}
		s.save()
	}
}

// save writes down what is desired now. An error is logged: the agent goes on.
func (s *Source) save() {
	s.saving.Lock() // who comes last saves what is newest
	defer s.saving.Unlock()
	s.mu.Lock()
	state := saved{Version: stateVersion, Node: s.Node, ASN: s.ASN, At: time.Now(), Services: s.world.Services()}
	state.Four, state.Six = s.world.Addresses()
	if s.world.routes != nil {
		state.Policies = s.world.routes.Policies
	}
	s.mu.Unlock()
	state.Peers = s.passwords.placed()
	if err := state.write(s.StateDir); err != nil {
		s.Log.Error("state can't be saved", "error", err)
	}
}

// write replaces the file at once.
func (s *saved) write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, stateFile), data)
}

// replaceFile writes a file that only the agent's user reads, whole or not at all.
func replaceFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
