// SPDX-License-Identifier: Apache-2.0

// Package drain keeps what operators have taken out of service, and takes the
// node out of service when its agent is told to end.
//
// It stands beside the store in the story of DESIGN.md §1: it understands what
// operators name, hands their wishes to the store, and remembers them for the
// next agent.
package drain

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
)

// Book is the record of drains, in the store and in a file. Its methods may be
// called from several goroutines.
type Book struct {
	store *store.Store
	path  string

	// mu is held for one change at a time, the store's included: the file, the
	// book and the store say the same afterwards.
	mu     sync.Mutex
	drains []store.Drain
}

// Open returns the book that is kept in a file, and drains what is in it. A file
// that can't be read is logged and counts as empty: what it asked for nobody
// knows any more.
func Open(path string, s *store.Store, log *slog.Logger) *Book {
	drains, err := load(path)
	if err != nil {
		log.Error("drains of an earlier agent are lost", "error", err)
	}
	s.Drain(drains...)
	return &Book{store: s, path: path, drains: drains}
}

// Drain drains a target, if it is not drained already. A backend without a port
// stands for all at its address.
func (b *Book) Drain(target observe.DrainTarget) error {
	targets, err := known(b.store.Snapshot(), target)
	if err != nil {
		return err
	}
	now := time.Now()
	return b.change(func(drains []store.Drain) []store.Drain {
		for _, t := range targets {
			if !slices.ContainsFunc(drains, func(d store.Drain) bool { return d.Target == t }) {
				drains = append(drains, store.Drain{Target: t, Since: now})
			}
		}
		return drains
	})
}

// Undrain ends the drain of a target, if it is drained; also of one that is not
// in the configuration any more.
func (b *Book) Undrain(target observe.DrainTarget) error {
	snapshot := b.store.Snapshot()
	drained := func(d store.Drain) bool { return covers(target, d.Target) }
	if !slices.ContainsFunc(snapshot.Drains, drained) {
		_, err := known(snapshot, target)
		return err
	}
	return b.change(func(drains []store.Drain) []store.Drain { return slices.DeleteFunc(drains, drained) })
}

// change writes the drains down before it tells the store, so that nothing is
// drained, or in use, that the next agent would see otherwise.
func (b *Book) change(edit func([]store.Drain) []store.Drain) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := edit(slices.Clone(b.drains))
	if err := save(b.path, next); err != nil {
		return err
	}
	var gone []store.Target
	for _, d := range b.drains {
		if !slices.Contains(next, d) {
			gone = append(gone, d.Target)
		}
	}
	b.store.Drain(next...)
	b.store.Undrain(gone...)
	b.drains = next
	return nil
}

// covers reports whether a target that an operator named is that one.
func covers(named observe.DrainTarget, t store.Target) bool {
	return named.Covers(observe.DrainTarget{Service: t.Service, Backend: t.Backend})
}

// known returns the targets that an operator named, all of them configured.
func known(snapshot store.Snapshot, named observe.DrainTarget) ([]store.Target, error) {
	node, whole := named.Service == "", !named.Backend.Addr().IsValid()
	switch {
	case node && whole:
		return []store.Target{{}}, nil
	case node:
		return nil, fmt.Errorf("backend %s: of which service?", named.Backend)
	}
	at := slices.IndexFunc(snapshot.Services, func(e store.Entry) bool { return e.Configured.Name == named.Service })
	if at < 0 {
		return nil, fmt.Errorf("service %q: not in the configuration", named.Service)
	}
	if whole {
		return []store.Target{{Service: named.Service}}, nil
	}
	return backends(snapshot.Services[at].Configured, named)
}

func backends(svc *lb.Service, named observe.DrainTarget) ([]store.Target, error) {
	var targets []store.Target
	for _, b := range svc.Backends {
		if t := (store.Target{Service: svc.Name, Backend: b.ID()}); covers(named, t) {
			targets = append(targets, t)
		}
	}
	if targets == nil {
		return nil, fmt.Errorf("backend %s: not in the configuration", named)
	}
	return targets, nil
}
