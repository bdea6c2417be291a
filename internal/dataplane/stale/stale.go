// SPDX-License-Identifier: Apache-2.0

// Package stale is the queue behind dataplane.DataPlane's Stale: services that
// have to be updated again, each once however often it was added.
package stale

import "fairlead.io/fairlead/internal/lb"

// Queue hands VIPs to a receiver in the order in which they came. Adding never
// waits for the receiver; a VIP that waits is not queued twice.
type Queue struct {
	in, out chan lb.VIP
	done    chan struct{}
}

// New returns an empty queue; Close ends its goroutine.
func New() *Queue {
	q := &Queue{in: make(chan lb.VIP), out: make(chan lb.VIP), done: make(chan struct{})}
	go q.run()
	return q
}

// run owns what waits, so that handing a VIP over and forgetting it are one.
func (q *Queue) run() {
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

// Add queues vip unless it waits already. After Close it does nothing.
func (q *Queue) Add(vip lb.VIP) {
	select {
	case q.in <- vip:
	case <-q.done:
	}
}

// Out delivers what was added; it is never closed.
func (q *Queue) Out() <-chan lb.VIP { return q.out }

// Close ends the queue; what waits is dropped. It is called once.
func (q *Queue) Close() { close(q.done) }
