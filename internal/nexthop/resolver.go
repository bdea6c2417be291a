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
	"fairlead.io/fairlead/internal/wait"
)

const (
	// decideDelay is how long events are collected before targets are decided
	// again. It is part of the 10 ms from a change of a backend to its effect on
	// packets.
	decideDelay = 2 * time.Millisecond
	// tickInterval is the interval of checks for changes without events.
	tickInterval = time.Second
)

// errClosed is the result of every target after Close.
var errClosed = errors.New("next hops are no longer followed")

// Resolver finds how targets are reached, and reports changes. It works in
// the network namespace in which it was created, from any goroutine.
type Resolver struct {
	log    *slog.Logger
	kernel *rtnetlink
	events *subscription

	// mu guards table, notify and closed.
	mu     sync.Mutex
	table  *table
	notify func(lb.VIP)
	closed bool

	// marked wakes the goroutine that decides, interfaces the reader of Interfaces;
	// each has room for one wake-up.
	marked     chan struct{}
	interfaces chan struct{}

	done    chan struct{}
	running sync.WaitGroup
}

// New returns a Resolver for the calling thread's network namespace. XDP runs on interfaces;
// they needn't exist yet. With filterPods packets for pods of this machine are left to its
// network stack, whose filters XDP would bypass: pods are hosts directly connected by a veth
// or a bridge of veths. The caller closes it.
func New(log *slog.Logger, interfaces []string, filterPods bool) (*Resolver, error) {
	// Subscribe before reading, so that no change is missed.
	events, err := subscribe()
	if err != nil {
		return nil, fmt.Errorf("next hops: events: %w", err)
	}
	k, err := openKernel()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("next hops: %w", err), events.close())
	}
	r := &Resolver{
		log:    log,
		kernel: k,
		events: events,
		table:  newTable(log, k, slices.Clone(interfaces), filterPods),
		notify: func(lb.VIP) {},
		marked: make(chan struct{}, 1),
		done:   make(chan struct{}),

		interfaces: make(chan struct{}, 1),
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
// how each is reached, in their order. A new target is looked up in the kernel's
// tables now, one that is followed already costs nothing. A
// neighbour that isn't resolved is probed: its target has an error at first, and
// vip is notified when it answers.
func (r *Resolver) Follow(vip lb.VIP, targets []Target) []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return slices.Repeat([]Result{{Err: errClosed}}, len(targets))
	}
	return r.table.follow(vip, targets)
}

// Forget ends Follow for vip. Targets of no other service are dropped.
func (r *Resolver) Forget(vip lb.VIP) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.table.forget(vip)
	}
}

// Ports returns the ports of a bridge, in no order; none if the device is not a
// bridge.
func (r *Resolver) Ports(bridge int) []Port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.ports(bridge)
}

// Notify sets the function that is called with a service when a target of its is
// reached differently from Follow's last result, so that Follow is called again. It
// comes before the first Follow. changed must not wait for the Resolver.
func (r *Resolver) Notify(changed func(lb.VIP)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify = changed
}

// Interfaces receives after an interface on which XDP runs may have been created, removed
// or changed otherwise.
func (r *Resolver) Interfaces() <-chan struct{} { return r.interfaces }

// Close ends the following and gives the neighbours back to the kernel.
func (r *Resolver) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	for vip := range r.table.owners {
		r.table.forget(vip)
	}
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
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return
		}
		for i := range messages {
			err = errors.Join(err, apply(r.table, &messages[i]))
		}
		if err != nil {
			r.log.Warn("netlink events lost, resyncing", "error", err)
			r.table.unsynced, r.table.relinked = true, true
		}
		relinked := r.table.relinked
		r.table.relinked = false
		r.mu.Unlock()
		wait.Signal(r.marked)
		if relinked {
			wait.Signal(r.interfaces)
		}
	}
}

// run decides again on the entries that events have marked, some time after the first event.
func (r *Resolver) run() {
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	var due <-chan time.Time
	for {
		select {
		case <-r.done:
			return
		case <-tick.C:
			r.tick()
		case <-r.marked:
			if due == nil {
				due = time.After(decideDelay)
			}
		case <-due:
			due = nil
			r.notifyChanged()
		}
	}
}

func (r *Resolver) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.tick()
	wait.Signal(r.marked)
}

// notifyChanged notifies of the services that are reached differently now. After an error
// the next tick tries again.
func (r *Resolver) notifyChanged() {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	vips, err := r.table.decideMarked()
	notify := r.notify
	r.mu.Unlock()
	if err != nil {
		r.log.Warn("resync failed, retrying", "error", err)
	}
	for _, vip := range vips {
		notify(vip)
	}
}
