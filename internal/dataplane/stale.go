// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fairlead.io/fairlead/internal/lb"
)

// StaleQueue is the queue behind DataPlane.Stale: VIPs of services that have to
// be updated again, in the order in which they were added. Add never blocks; a
// VIP that is queued is not queued twice.
type StaleQueue struct {
	in, out chan lb.VIP
	done    chan struct{}
}

// NewStaleQueue returns an empty queue; Close ends its goroutine.
func NewStaleQueue() *StaleQueue {
	q := &StaleQueue{in: make(chan lb.VIP), out: make(chan lb.VIP), done: make(chan struct{})}
	go q.run()
	return q
}

// run owns the queued VIPs, so that delivering and removing one is a single step.
func (q *StaleQueue) run() {
	var order []lb.VIP
	waits := map[lb.VIP]bool{}
	for {
		var out chan lb.VIP
		var first lb.VIP
		if len(order) > 0 {
			out, first = q.out, order[0]
		}
		select {
		case vip := <-q.in:
			if !waits[vip] {
				waits[vip] = true
				order = append(order, vip)
			}
		case out <- first:
			delete(waits, first)
			order = order[1:]
		case <-q.done:
			return
		}
	}
}

// Add queues vip unless it is queued already. After Close it does nothing.
func (q *StaleQueue) Add(vip lb.VIP) {
	select {
	case q.in <- vip:
	case <-q.done:
	}
}

// Out delivers the queued VIPs; it is never closed.
func (q *StaleQueue) Out() <-chan lb.VIP { return q.out }

// Close ends the queue and drops the queued VIPs. It is called once.
func (q *StaleQueue) Close() { close(q.done) }
