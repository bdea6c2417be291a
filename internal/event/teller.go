// SPDX-License-Identifier: Apache-2.0

package event

import (
	"log/slog"
	"time"

	"fairlead.io/fairlead/internal/observe"
)

// Teller writes events to a log and remembers the latest for those who look. Its
// methods may be called from several goroutines.
type Teller struct {
	// Latest are the events that were told last.
	Latest observe.Events

	log *slog.Logger
}

// NewTeller returns a Teller with a limit of its own on what it logs.
func NewTeller(log *slog.Logger) *Teller {
	return &Teller{log: slog.New(Limited(log.Handler()))}
}

// ProgramReplaced tells that the data plane's program gave way to another one.
func (t *Teller) ProgramReplaced(reason string) {
	t.log.Info("program replaced", slog.String("reason", reason))
	t.remember("program", "data plane", "replaced: "+reason)
}

func (t *Teller) remember(kind, object, reason string) {
	t.Latest.Add(observe.Event{Time: time.Now(), Kind: kind, Object: object, Reason: reason})
}
