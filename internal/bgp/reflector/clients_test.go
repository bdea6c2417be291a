// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// FuzzClientFile shows that no file keeps the reflector from starting, and that clients
// which are saved are read again.
func FuzzClientFile(f *testing.F) {
	for _, seed := range []string{
		"", "[", "null", "{}", `[{"address":"10.0.0.1","routerID":"10.0.0.2"}]`,
		`[{"address":"10.0.0.1","routerID":"10.0.0.2"},{"addr`, `[{"address":"fd00::1%eth0"},{"routerID":7}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "clients.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openClientFile(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		clients := make(map[identity]*client)
		for _, id := range append(slices.Clone(file.before), identity{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}) {
			clients[id] = &client{status: bgp.PeerState{Since: time.Now()}}
		}
		file.save(clients)
		again, err := openClientFile(path, slog.New(slog.DiscardHandler))
		if err != nil || len(file.saved) == 0 || !slices.Equal(again.before, file.saved) {
			t.Errorf("read %v, saved %v (%v)", again.before, file.saved, err)
		}
	})
}
