// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

const (
	// settleDelay is how long events are gathered before what they concern is
	// decided again. It is a part of the 10 ms between a change of a backend and
	// the packets' following it (DESIGN.md §10).
	settleDelay = 2 * time.Millisecond
	// tickInterval is how often there is a look at what no event will tell.
	tickInterval = time.Second
)

// errClosed is the result of every target after Close.
var errClosed = errors.New("next hops are no longer followed")

// Resolver tells how targets are reached, and when that changes. It works in
// the network namespace in which it was created, from any goroutine.
type Resolver struct {
	log    *slog.Logger
	kernel *rtnetlink
	events *subscription

	// mu guards table and closed.
	mu     sync.Mutex
	table  *table
	closed bool

	// marked wakes the goroutine that settles; it has room for one wake-up.
	marked  chan struct{}
	changed chan lb.VIP
	done    chan struct{}
	running sync.WaitGroup
}

// New returns a Resolver for the calling thread's network namespace. interfaces
// are those on which XDP runs; they needn't exist yet. The caller closes it.
func New(log *slog.Logger, interfaces []string) (*Resolver, error) {
	// Listening begins before reading, so that no change is missed.
	events, err := subscribe()
	if err != nil {
		return nil, fmt.Errorf("next hops: events: %w", err)
	}
	k, err := openKernel()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("next hops: %w", err), events.close())
	}
	r := &Resolver{
		log:     log,
		kernel:  k,
		events:  events,
		table:   newTable(log, k, slices.Clone(interfaces)),
		marked:  make(chan struct{}, 1),
		changed: make(chan lb.VIP),
		done:    make(chan struct{}),
	}
	if err := r.table.sync(); err != nil {
		k.close()
		return nil, errors.Join(fmt.Errorf("next hops: %w", err), events.close())
	}
	r.running.Go(r.listen)
	r.running.Go(r.run)
	return r, nil
}

// Follow makes targets, and no others, those that vip depends on, and returns
// how each is reached, in their order. A target that nobody followed is looked
// up in the kernel's tables now, one that somebody does costs nothing. A
// neighbour that isn't resolved is probed: its target has an error at first, and
// vip comes out of Changed when it answers.
func (r *Resolver) Follow(vip lb.VIP, targets []Target) []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return slices.Repeat([]Result{{Err: errClosed}}, len(targets))
	}
	return r.table.follow(vip, targets)
}

// Forget ends what Follow began for vip. What nobody else follows is dropped.
func (r *Resolver) Forget(vip lb.VIP) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.table.forget(vip)
	}
}

// Ports returns the devices whose packets are those of another, which is a
// bridge, in no order; none if it isn't.
func (r *Resolver) Ports(bridge int) []Port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.ports(bridge)
}

// Changed delivers a service when a target of its is reached differently from
// what Follow returned last: the receiver calls Follow again. A service that
// waits in the channel isn't queued twice. The channel is never closed.
func (r *Resolver) Changed() <-chan lb.VIP { return r.changed }

// Close ends the following and gives the neighbours back to the kernel.
func (r *Resolver) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.table.releaseAll()
	r.kernel.close()
	r.mu.Unlock()
	close(r.done)
	err := r.events.close()
	r.running.Wait()
	return err
}

// listen hands the kernel's events to the table until the Resolver is closed.
func (r *Resolver) listen() {
	for {
		messages, err := r.events.receive()
		if err != nil && r.stopped() {
			return
		}
		r.mu.Lock()
		if err != nil {
			r.log.Warn("next hops are read again", "error", err)
			r.table.unsynced = true
		}
		for i := range messages {
			if err := apply(r.table, &messages[i]); err != nil {
				r.log.Warn("next hops are read again", "error", err)
				r.table.unsynced = true
			}
		}
		r.mu.Unlock()
		r.wake()
	}
}

func (r *Resolver) stopped() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *Resolver) wake() {
	select {
	case r.marked <- struct{}{}:
	default:
	}
}

// run settles what events have marked, some time after the first of them, and
// delivers the services that this concerns.
func (r *Resolver) run() {
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	var settle <-chan time.Time
	var queue []lb.VIP
	for {
		var out chan<- lb.VIP
		var first lb.VIP
		if len(queue) > 0 {
			out, first = r.changed, queue[0]
		}
		select {
		case <-r.done:
			return
		case <-tick.C:
			r.tick()
		case <-r.marked:
			if settle == nil {
				settle = time.After(settleDelay)
			}
		case <-settle:
			settle = nil
			queue = enqueue(queue, r.settle())
		case out <- first:
			queue = queue[1:]
		}
	}
}

func (r *Resolver) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.tick()
	r.wake()
}

// settle returns the services that are reached differently now. After an error
// the next tick tries again.
func (r *Resolver) settle() []lb.VIP {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	vips, err := r.table.settle()
	if err != nil {
		r.log.Warn("next hops are out of date", "error", err)
	}
	return vips
}

// enqueue appends those of vips that aren't in the queue.
func enqueue(queue, vips []lb.VIP) []lb.VIP {
	waiting := make(map[lb.VIP]struct{}, len(queue))
	for _, vip := range queue {
		waiting[vip] = struct{}{}
	}
	for _, vip := range vips {
		if _, ok := waiting[vip]; !ok {
			queue = append(queue, vip)
		}
	}
	return queue
}
