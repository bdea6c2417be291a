// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/google/renameio/v2"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// verdictsAge is how long after its end an agent's verdicts are used by the next one.
	verdictsAge = 10 * time.Minute
	// verdictsInterval is how often the file is written without a change: its modification
	// time says until when its agent ran.
	verdictsInterval = time.Minute
	// verdictsLoad is the part of the time that verdicts may take: 1/20.
	verdictsLoad = 20
)

// VerdictsPath is the file of the verdicts of an agent with that control socket, for
// example /run/fairlead/agent.health.json.
func VerdictsPath(socket string) string { return nextToSocket(socket, ".health.json") }

// LoadVerdicts returns the saved verdicts if their agent ran until ten minutes ago or
// later. A file that can't be read is logged and counts as empty.
func LoadVerdicts(path string, log *slog.Logger) map[string]health.State {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()).Abs() > verdictsAge {
		return nil
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	var verdicts map[string]health.State
	if err == nil {
		err = json.Unmarshal(text, &verdicts)
	}
	if err != nil {
		log.Error("verdicts of an earlier agent are lost", "path", path, "error", err)
		return nil
	}
	return verdicts
}

// SaveVerdicts saves the verdicts for the next agent until ctx ends: of those backends
// that don't count as their checks say initially, by health.Identity. Only the file's
// owner reads it.
func (s *Store) SaveVerdicts(ctx context.Context, path string, log *slog.Logger) {
	tick := time.NewTicker(verdictsInterval)
	defer tick.Stop()
	f := verdictsFile{path: path}
	reason := ""
	for {
		snapshot, changed := s.Watch()
		began := time.Now()
		if err := f.save(snapshot, began); err == nil {
			reason = ""
		} else if reason != err.Error() {
			reason = err.Error()
			log.Error("verdicts of health checks not saved", "error", err)
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(verdictsLoad * time.Since(began)):
			select {
			case <-ctx.Done():
			case <-changed:
			case <-tick.C:
			}
		}
	}
}

// verdictsFile is the file of an agent's verdicts.
type verdictsFile struct {
	path string
	// saved are its content, nil before it is written, of a snapshot's revision; written
	// is its modification time.
	saved    map[string]health.State
	revision uint64
	written  time.Time
}

// save keeps the file equal to the snapshot, and less than verdictsInterval old.
func (f *verdictsFile) save(s Snapshot, now time.Time) error {
	current := f.saved != nil && now.Sub(f.written) < verdictsInterval
	if s.Revision == 0 || current && f.revision == s.Revision {
		return nil // at revision 0 the verdicts of an earlier agent still hold
	}
	next := s.exceptional()
	if !current || !maps.EqualFunc(f.saved, next, sameState) {
		text, err := json.MarshalIndent(next, "", "  ")
		if err == nil {
			err = renameio.WriteFile(f.path, append(text, '\n'), 0o600)
		}
		if err != nil {
			return err
		}
		f.saved, f.written = next, now
	}
	f.revision = s.Revision
	return nil
}

// exceptional are the states of backends that don't count as their checks say initially.
func (s Snapshot) exceptional() map[string]health.State {
	states := map[string]health.State{}
	for i := range s.Services {
		svc := s.Services[i].Configured
		if svc.Health == nil {
			continue
		}
		initially := svc.Health.Initially != lb.InitiallyUnhealthy
		for _, b := range svc.Backends {
			if state, judged := s.Services[i].Health[b.ID()]; judged && state.Healthy != initially {
				states[health.Identity(svc, b)] = state
			}
		}
	}
	return states
}
