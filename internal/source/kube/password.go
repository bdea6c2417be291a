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

	"github.com/google/renameio/v2"

	"fairlead.io/fairlead/internal/bgp"
)

// makeDir creates a folder that only the agent's user can read.
func makeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// passwords stores the passwords of peers in one file each, which sessions read, also those
// of a next agent that can't read Secrets.
type passwords struct{ dir string }

// passwordDir is a folder in the state folder.
const passwordDir = "passwords"

// store writes the passwords of peers to files and sets their paths. A changed password gets
// a new file, so that a speaker detects the change. Peers whose password can't be written
// are omitted.
func (p passwords) store(from []Peer) (peers []bgp.Peer, err error) {
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
	return peers, errors.Join(errs...)
}

// write returns the path of a peer's file with that content.
func (p passwords) write(peer string, password []byte) (string, error) {
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

// removeOthers removes files that no peer uses.
func (p passwords) removeOthers(peers []bgp.Peer) {
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
