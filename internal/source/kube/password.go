// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"fairlead.io/fairlead/internal/bgp"
)

// passwords keeps those of peers in files, one each, from which sessions read them,
// also those of a next agent that can't ask for Secrets.
type passwords struct {
	dir string

	mu sync.Mutex
	// peers are those of the last place.
	peers []bgp.Peer
}

// passwordDir is within the state folder.
const passwordDir = "passwords"

// place gives peers that have a password the file that has it. A password that
// changes gets another file, by which a speaker sees that it has changed. Peers
// whose password can't be kept are left out.
func (p *passwords) place(from []Peer) (peers []bgp.Peer, err error) {
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

// write returns a file of that peer with that content.
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
	return path, replaceFile(path, password)
}

// placed are the peers of the last place.
func (p *passwords) placed() []bgp.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers
}

// keepOnly removes the files that no peer uses.
func (p *passwords) keepOnly(peers []bgp.Peer) {
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
			_ = os.Remove(path) // the next time, then
		}
	}
}
