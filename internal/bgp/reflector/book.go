// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
)

// book remembers clients over a restart of the reflector, in a file; a nil book
// remembers nothing.
type book struct {
	path          string
	before, known []identity
}

// identity is what tells clients apart: behind a node that translates addresses
// many have the same one.
type identity struct {
	Address  netip.Addr `json:"address"`
	RouterID netip.Addr `json:"routerID"`
}

func (i identity) compare(other identity) int {
	return cmp.Or(i.Address.Compare(other.Address), i.RouterID.Compare(other.RouterID))
}

// String is for the log.
func (i identity) String() string { return fmt.Sprintf("%s (%s)", i.Address, i.RouterID) }

// openBook reads who was a client when the last reflector ended.
func openBook(path string) (*book, error) {
	if path == "" {
		return nil, nil
	}
	b := &book{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("clients: %w", err)
	}
	if err := json.Unmarshal(data, &b.before); err != nil {
		return nil, fmt.Errorf("clients: %s: %w", path, err)
	}
	return b, nil
}

// earlier are the clients of the reflector before this one.
func (b *book) earlier() []identity {
	if b == nil {
		return nil
	}
	return b.before
}

// write remembers these clients, if they aren't the ones that it knows.
func (b *book) write(clients []identity) error {
	if b == nil {
		return nil
	}
	slices.SortFunc(clients, identity.compare)
	if slices.Equal(clients, b.known) {
		return nil
	}
	data, err := json.Marshal(clients)
	if err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	next := b.path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	if err := os.Rename(next, b.path); err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	b.known = clients
	return nil
}
