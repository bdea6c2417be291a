// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// ErrClosed is returned by calls of a closed data plane.
var ErrClosed = errors.New("data plane is closed")

// Ticket names a moment; it is over once every packet that was being processed
// at that moment has left the program.
type Ticket uint64

// BusyError is returned by a change that has to wait for a grace period.
type BusyError struct{ Until Ticket }

func (BusyError) Error() string { return "waiting for packets to leave the tables" }

// Grace waits until packets have stopped reading elements that are not reachable for new
// packets any more. XDP programs are RCU readers, so that is one RCU grace period (about
// 10 ms), waited for in the background.
type Grace struct {
	mu      sync.Mutex
	changed *sync.Cond
	begun   Ticket // the newest grace period that has started
	ended   Ticket // the newest one that has ended
	wanted  Ticket // the newest one that is waited for
	closed  bool
	err     error
	done    chan struct{}
}

// newGrace starts waiting on demand; synchronize returns after a grace period.
func newGrace(synchronize func() error) *Grace {
	g := &Grace{done: make(chan struct{})}
	g.changed = sync.NewCond(&g.mu)
	go g.run(synchronize)
	return g
}

func (g *Grace) run(synchronize func() error) {
	defer close(g.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		for g.wanted <= g.ended && !g.closed {
			g.changed.Wait()
		}
		if g.closed {
			return
		}
		g.begun++
		g.mu.Unlock()
		err := synchronize()
		g.mu.Lock()
		if err != nil {
			g.err, g.closed = fmt.Errorf("grace period: %w", err), true
		} else {
			g.ended = g.begun
		}
		g.changed.Broadcast()
	}
}

// Now returns the ticket of this moment and begins to wait for its end.
func (g *Grace) Now() Ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.begun + 1
	if t > g.wanted {
		g.wanted = t
		g.changed.Broadcast()
	}
	return t
}

// Over reports whether the grace period of t has ended.
func (g *Grace) Over(t Ticket) bool { return t <= g.Newest() }

// Newest is the newest grace period that has ended.
func (g *Grace) Newest() Ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

// Wait returns when t is over, when ctx ends, or when no grace period can end
// any more.
func (g *Grace) Wait(ctx context.Context, t Ticket) error {
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.changed.Broadcast()
	})
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for t > g.ended {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case g.err != nil:
			return g.err
		case g.closed:
			return ErrClosed
		}
		g.changed.Wait()
	}
	return nil
}

// Close ends all waiting.
func (g *Grace) Close() {
	g.mu.Lock()
	g.closed = true
	g.changed.Broadcast()
	g.mu.Unlock()
	<-g.done
}

// synchronizer returns a function that waits for one RCU grace period. A write
// to a map of maps does (maybe_wait_bpf_programs in kernel/bpf/syscall.c, since
// 5.0), also on kernels with nohz_full, where membarrier(2) refuses to.
func synchronizer() (synchronize func() error, closer func(), err error) {
	inner := &ebpf.MapSpec{Name: "fl_grace_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	leaf, err := ebpf.NewMap(inner)
	if err != nil {
		return nil, nil, fmt.Errorf("grace map: %w", err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "fl_grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner,
	})
	if err != nil {
		leaf.Close()
		return nil, nil, fmt.Errorf("grace map: %w", err)
	}
	return func() error { return outer.Put(uint32(0), leaf) }, func() { outer.Close(); leaf.Close() }, nil
}
