// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"fairlead.io/fairlead/internal/lb"
)

// Drains are the drains that operators have set, in the store and in a file for
// the next agent. Its methods may be called from several goroutines.
type Drains struct {
	store *Store
	path  string

	// mu is held for one change at a time, the store's included: the file, the
	// list and the store agree afterwards.
	mu   sync.Mutex
	list []Drain
}

// DrainsPath is the file of the drains of an agent with that control socket, for
// example /run/fairlead/agent.drains.json.
func DrainsPath(socket string) string { return nextToSocket(socket, ".drains.json") }

func nextToSocket(socket, suffix string) string { return strings.TrimSuffix(socket, ".sock") + suffix }

// OpenDrains reads a file of drains and sets them in the store. A file that can't
// be read is logged and counts as empty.
func OpenDrains(path string, s *Store, log *slog.Logger) *Drains {
	list, err := loadDrains(path)
	if err != nil {
		log.Error("drains of an earlier agent are lost", "error", err)
	}
	s.Drain(list...)
	return &Drains{store: s, path: path, list: list}
}

// Drain drains a target, if it is not drained already. A backend without a port
// stands for all at its address.
func (d *Drains) Drain(target Target) error {
	targets, err := d.store.Snapshot().resolve(target)
	if err != nil {
		return err
	}
	now := time.Now()
	return d.change(func(list []Drain) []Drain {
		for _, t := range targets {
			if !slices.ContainsFunc(list, func(one Drain) bool { return one.Target == t }) {
				list = append(list, Drain{Target: t, Since: now})
			}
		}
		return list
	})
}

// Undrain ends the drain of a target, if it is drained; also of one that is not
// configured any more.
func (d *Drains) Undrain(target Target) error {
	snapshot := d.store.Snapshot()
	drained := func(one Drain) bool { return target.Covers(one.Target) }
	if !slices.ContainsFunc(snapshot.Drains, drained) {
		_, err := snapshot.resolve(target)
		return err
	}
	return d.change(func(list []Drain) []Drain { return slices.DeleteFunc(list, drained) })
}

// change saves the drains before it sets them in the store, so that the next agent
// drains no more and no less than this one.
func (d *Drains) change(edit func([]Drain) []Drain) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := edit(slices.Clone(d.list))
	if err := saveDrains(d.path, next); err != nil {
		return fmt.Errorf("drains not saved: %w", err)
	}
	var ended []Target
	for _, one := range d.list {
		if !slices.Contains(next, one) {
			ended = append(ended, one.Target)
		}
	}
	d.store.Drain(next...)
	d.store.Undrain(ended...)
	d.list = next
	return nil
}

// resolve returns the configured targets that an operator named.
func (s Snapshot) resolve(named Target) ([]Target, error) {
	node, whole := named.Service == "", !named.Backend.Addr().IsValid()
	switch {
	case node && whole:
		return []Target{{}}, nil
	case node:
		return nil, fmt.Errorf("backend %s: of which service?", named.Backend)
	}
	at := slices.IndexFunc(s.Services, func(e Entry) bool { return e.Configured.Name == named.Service })
	if at < 0 {
		return nil, fmt.Errorf("service %q: not in the configuration", named.Service)
	}
	if whole {
		return []Target{{Service: named.Service}}, nil
	}
	var targets []Target
	for _, b := range s.Services[at].Configured.Backends {
		if t := (Target{Service: named.Service, Backend: b.ID()}); named.Covers(t) {
			targets = append(targets, t)
		}
	}
	if targets == nil {
		return nil, fmt.Errorf("backend %s: not in the configuration", named)
	}
	return targets, nil
}

// loadDrains reads a file of drains; one that doesn't exist has none.
func loadDrains(path string) (list []Drain, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, d := range list {
		if d.Service == "" && d.Backend != (lb.BackendID{}) {
			return nil, fmt.Errorf("%s: backend %s has no service", path, d.Backend)
		}
	}
	return list, nil
}

// saveDrains replaces a file of drains, so that a power cut leaves the old one or
// the new one. Only its owner reads it.
func saveDrains(path string, list []Drain) error {
	if list == nil {
		list = []Drain{}
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o600)
}
