// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"log/slog"
	"sync"
)

// messenger carries events from sessions, which can't wait, to a listener that
// may take its time.
type messenger struct {
	log      *slog.Logger
	onChange func(Event)
	// news has a note while there are events; it is closed at the end.
	news chan struct{}

	mu     sync.Mutex
	events []Event
	closed bool
}

func newMessenger(log *slog.Logger, onChange func(Event)) *messenger {
	return &messenger{log: log, onChange: onChange, news: make(chan struct{}, 1)}
}

// tell never waits.
func (m *messenger) tell(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.events = append(m.events, e)
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// run hands on events until close.
func (m *messenger) run() {
	for range m.news {
		for _, e := range m.take() {
			m.log.Debug("bfd session changed", slog.Any("peer", e.Peer), slog.Any("from", e.Old),
				slog.Any("to", e.New), slog.String("diagnostic", e.Diagnostic.String()))
			m.onChange(e)
		}
	}
}

func (m *messenger) take() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

// close drops what hasn't been handed on.
func (m *messenger) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed, m.events = true, nil
		close(m.news)
	}
}
