// SPDX-License-Identifier: Apache-2.0

package routehook

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// load begins with the routes that an earlier Hook may have added.
func (h *Hook) load() error {
	h.recorded = map[netip.Prefix]bool{}
	if h.File == "" {
		return nil
	}
	text, err := os.ReadFile(h.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(text)) {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("%s: %w", h.File, err)
		}
		h.recorded[prefix] = true
		h.routes[prefix] = &route{tried: true, next: time.Now().Add(h.Settle)}
	}
	return nil
}

// record writes a prefix to the file, before its route may be there.
func (h *Hook) record(prefix netip.Prefix) error {
	if h.recorded[prefix] {
		return nil
	}
	h.recorded[prefix] = true
	err := h.save()
	if err != nil {
		delete(h.recorded, prefix)
	}
	return err
}

// erase takes a prefix out of the file, after its route has been removed.
func (h *Hook) erase(prefix netip.Prefix) error {
	delete(h.recorded, prefix)
	return h.save()
}

func (h *Hook) save() error {
	if h.File == "" {
		return nil
	}
	var text strings.Builder
	for _, prefix := range slices.SortedFunc(maps.Keys(h.recorded), netip.Prefix.Compare) {
		text.WriteString(prefix.String() + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(h.File), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(h.File, []byte(text.String()), 0o600)
}
