// SPDX-License-Identifier: Apache-2.0

package fake

import "fairlead.io/fairlead/internal/lb"

// staleQueue hands VIPs to a receiver in the order in which they came, each
// once however often it was added while it waited. Adding never waits for the
// receiver.
type staleQueue struct {
	in, out chan lb.VIP
	done    chan struct{}
}

func newStaleQueue() *staleQueue {
	q := &staleQueue{in: make(chan lb.VIP), out: make(chan lb.VIP), done: make(chan struct{})}
	go q.run()
	return q
}

// run owns what waits, so that handing a VIP over and forgetting it are one.
func (q *staleQueue) run() {
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

func (q *staleQueue) add(vip lb.VIP) {
	select {
	case q.in <- vip:
	case <-q.done:
	}
}

func (q *staleQueue) close() { close(q.done) }
