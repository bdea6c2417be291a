// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// saveDelay batches changes.
	saveDelay = time.Second / 2
	stateFile = "state.json"
	// stateVersion is the version of the file's format: an agent reads no other.
	stateVersion = 1
)

// saved is the state that the next agent serves while the API server is unreachable.
type saved struct {
	Version int       `json:"version"`
	Node    string    `json:"node"`
	ASN     uint32    `json:"asn"`
	At      time.Time `json:"at"`
	// Four and Six are the node's internal addresses.
	Four     netip.Addr   `json:"four"`
	Six      netip.Addr   `json:"six"`
	Services []lb.Service `json:"services"`
	// Peers refer to password files in the same folder.
	Peers    []bgp.Peer   `json:"peers"`
	Policies []bgp.Policy `json:"policies"`
}

// makeDir creates a folder that only the agent's user can read.
func makeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// load reads the saved state; nil if there is none. Services that this agent can't serve are
// removed.
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
		s.Peers = nil // selected for another speaker
	}
	s.Services = slices.DeleteFunc(s.Services, func(svc lb.Service) bool {
		return len(svc.Check()) > 0 || len(c.Limits.Check(&svc)) > 0
	})
	return s, nil
}

// saveLoop saves the state after changes, and once more when ctx ends.
func (s *Source) saveLoop(ctx context.Context) {
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

// save writes the current state. An error is only logged.
func (s *Source) save() {
	s.saving.Lock() // before reading the state, so that the last writer has the newest
	defer s.saving.Unlock()
	s.mu.Lock()
	state := saved{Version: stateVersion, Node: s.Node, ASN: s.ASN, At: time.Now(), Services: s.cache.Services()}
	state.Four, state.Six = s.cache.Addresses()
	if s.cache.routes != nil {
		state.Policies = s.cache.routes.Policies
	}
	s.mu.Unlock()
	state.Peers = s.passwords.current()
	if err := state.write(s.StateDir); err != nil {
		s.Log.Error("state not saved", "error", err)
	}
}

// write replaces the file atomically.
func (s *saved) write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, stateFile), data, 0o600)
}

// passwords stores the passwords of peers in one file each, which sessions read, also those
// of a next agent that can't read Secrets.
type passwords struct {
	dir string

	mu sync.Mutex
	// peers are those of the last call of store.
	peers []bgp.Peer
}

// passwordDir is a folder in the state folder.
const passwordDir = "passwords"

// store writes the passwords of peers to files and sets their paths. A changed password gets
// a new file, so that a speaker detects the change. Peers whose password can't be written
// are omitted.
func (p *passwords) store(from []Peer) (peers []bgp.Peer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for i := range from {
		peer := from[i].Peer
		if from[i].Key != nil {
			file, err := p.write(from[i].Name, from[i].Key)
			if err != nil {
				errs = append(errs, fmt.Errorf("BGPPeer %s: %w", from[i].Name, err))
				continue
			}
			peer.Password = bgp.Secret{File: file}
		}
		peers = append(peers, peer)
	}
	p.peers = peers
	return peers, errors.Join(errs...)
}

// write returns the path of a peer's file with that content.
func (p *passwords) write(peer string, password []byte) (string, error) {
	dir := filepath.Join(p.dir, passwordDir)
	if err := makeDir(dir); err != nil {
		return "", err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), peer+"@") {
			continue
		}
		path := filepath.Join(dir, f.Name())
		if has, err := os.ReadFile(path); err == nil && bytes.Equal(has, password) {
			return path, nil
		}
	}
	path := filepath.Join(dir, peer+"@"+rand.Text())
	return path, renameio.WriteFile(path, password, 0o600)
}

// current returns the peers of the last call of store.
func (p *passwords) current() []bgp.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers
}

// removeOthers removes files that no peer uses.
func (p *passwords) removeOthers(peers []bgp.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := map[string]bool{}
	for _, peer := range peers {
		used[peer.Password.File] = true
	}
	dir := filepath.Join(p.dir, passwordDir)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, f := range files {
		if path := filepath.Join(dir, f.Name()); !used[path] {
			_ = os.Remove(path) // retried by the next call
		}
	}
}
