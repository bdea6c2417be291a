// SPDX-License-Identifier: Apache-2.0

package reflector

import (
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
	before, known []netip.Addr
}

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
func (b *book) earlier() []netip.Addr {
	if b == nil {
		return nil
	}
	return b.before
}

// write remembers these clients, if they aren't the ones that it knows.
func (b *book) write(clients []netip.Addr) error {
	if b == nil {
		return nil
	}
	slices.SortFunc(clients, netip.Addr.Compare)
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
