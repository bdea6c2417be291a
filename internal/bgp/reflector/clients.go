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
	"time"

	"github.com/google/renameio/v2"
)

const (
	// endOfRIBDelay is the longest time between the End-of-RIBs of both families;
	// noEndOfRIBDelay is how long a client that sends none gets for its routes.
	endOfRIBDelay   = 100 * time.Millisecond
	noEndOfRIBDelay = time.Second
)

// clientFile saves the clients for the next start of the reflector. Without a path
// it does nothing.
type clientFile struct {
	path string
	log  *slog.Logger
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
	f.path, f.log = path, log
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

// save writes the clients that have had a session, if they have changed.
func (f *clientFile) save(clients map[identity]*client) {
	var known []identity
	for id, p := range clients {
		if !p.status.Since.IsZero() || p.established() {
			known = append(known, id)
		}
	}
	slices.SortFunc(known, identity.compare)
	if f.path == "" || slices.Equal(known, f.saved) {
		return
	}
	data, err := json.Marshal(known)
	if err == nil {
		err = renameio.WriteFile(f.path, data, 0o600)
	}
	if err != nil {
		f.log.Warn("clients not saved", "error", err)
		return
	}
	f.saved = known
}

// missing returns the earlier clients that haven't announced all of their routes yet.
func (f *clientFile) missing(clients map[identity]*client) (missing []identity) {
	for _, id := range f.before {
		p := clients[id]
		back := p != nil && p.established() && (time.Since(p.session.Status().Since) > noEndOfRIBDelay ||
			!p.endOfRIB.IsZero() && time.Since(p.endOfRIB) > endOfRIBDelay)
		if !back {
			missing = append(missing, id)
		}
	}
	return missing
}
