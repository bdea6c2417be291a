// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"github.com/google/renameio/v2"
)

// clientFile saves the clients for the next start of the reflector. Without a path
// it does nothing.
type clientFile struct {
	path string
	// before are the clients when the reflector ended, saved those in the file.
	before, saved []identity
}

// identity distinguishes clients: several may have one address, behind a node that
// translates theirs.
type identity struct {
	Address  netip.Addr `json:"address"`
	RouterID netip.Addr `json:"routerID"`
}

func (i identity) compare(other identity) int {
	return cmp.Or(i.Address.Compare(other.Address), i.RouterID.Compare(other.RouterID))
}

// String is for the log.
func (i identity) String() string { return fmt.Sprintf("%s (%s)", i.Address, i.RouterID) }

// openClientFile reads the clients. A malformed file is logged and counts as empty: it
// must not keep the reflector from starting.
func openClientFile(path string, log *slog.Logger) (f clientFile, err error) {
	f.path = path
	if path == "" {
		return f, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("clients: %w", err)
	}
	if err := json.Unmarshal(data, &f.before); err != nil {
		log.Warn("saved clients ignored", "file", path, "error", err)
		f.before = nil
	}
	return f, nil
}

// save writes the clients, if they have changed.
func (f *clientFile) save(clients []identity) error {
	slices.SortFunc(clients, identity.compare)
	if f.path == "" || slices.Equal(clients, f.saved) {
		return nil
	}
	data, err := json.Marshal(clients)
	if err == nil {
		err = renameio.WriteFile(f.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	f.saved = clients
	return nil
}
