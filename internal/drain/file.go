// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
)

// record is a drain as the file has it.
type record struct {
	observe.DrainTarget
	Since time.Time `json:"since"`
}

// Path is where the drains of an agent with that control socket are kept: beside
// it, for example /run/fairlead/agent.drains.json.
func Path(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".drains.json" }

// load reads a file of drains; one that isn't there has none.
func load(path string) ([]store.Drain, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []record
	if err := json.Unmarshal(text, &records); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	drains := make([]store.Drain, len(records))
	for i, r := range records {
		if r.Service == "" && r.Backend.IsValid() {
			return nil, fmt.Errorf("%s: backend %s has no service", path, r.Backend)
		}
		drains[i] = store.Drain{Target: store.Target{Service: r.Service, Backend: r.Backend}, Since: r.Since}
	}
	return drains, nil
}

// save replaces a file of drains at once, so that a power cut leaves the old one
// or the new one. Only its owner reads it.
func save(path string, drains []store.Drain) error {
	records := make([]record, len(drains))
	for i, d := range drains {
		records[i] = record{observe.DrainTarget{Service: d.Service, Backend: d.Backend}, d.Since}
	}
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := replace(path, append(text, '\n')); err != nil {
		return fmt.Errorf("drains can't be remembered: %w", err)
	}
	return nil
}

func replace(path string, text []byte) (err error) {
	next, err := os.CreateTemp(filepath.Dir(path), ".drains") // of mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.Write(text)
	if err == nil {
		err = next.Sync()
	}
	if err = errors.Join(err, next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
