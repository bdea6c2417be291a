// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"time"
)

// gather is how long verdicts wait for others to be reported with.
const gather = time.Millisecond

// note has a member's state reported.
func (m *Monitor) note(b *member) {
	if !b.changed {
		b.changed = true
		m.changed = append(m.changed, b)
	}
	signal(m.news)
}

// deliver reports what has changed until ctx ends. A change waits a moment for
// others, as one of many backends costs the store no more than one of one.
func (m *Monitor) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.news:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		if verdicts := m.takeChanged(); len(verdicts) > 0 {
			m.report(verdicts)
		}
	}
}

// takeChanged returns the states of the members that have changed; those that
// are gone are left out.
func (m *Monitor) takeChanged() []Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	verdicts := make([]Verdict, 0, len(m.changed))
	for _, b := range m.changed {
		b.changed = false
		if b.target != nil {
			verdicts = append(verdicts, b.verdict())
		}
	}
	m.changed = m.changed[:0]
	return verdicts
}
