// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// Prepare implements dataplane.Attacher: it loads the program. If that fails, Attach does.
func (p *Plane) Prepare(services []*lb.Service) { _ = p.loader.prepare(services) }

// Attach puts the program on the configured interfaces of the current network
// namespace and takes it off those that no longer are. It is called once, when
// services have been programmed, so that all their packets match a service, and waits
// for the neighbours that their backends need.
func (p *Plane) Attach(ctx context.Context) error {
	p.awaitNeighbours(ctx)
	return p.loader.program(ctx, 0, p.programs.Suits, func() error {
		if p.unread {
			p.unread = false
			for _, s := range p.services {
				s.started = p.clock() + p.startTime
			}
		}
		if err := p.programs.Attach(); err != nil {
			return err
		}
		return table.RemoveOtherLayouts(p.config.PinDir, cmp.Or(p.config.layout, table.Layout))
	})
}

// attachInterval is how often attachments are checked without an event.
const attachInterval = time.Second

// KeepAttached implements dataplane.Attacher: interfaces that are deleted and created
// again get the program again. It works in the network namespace of the calling thread.
func (p *Plane) KeepAttached(ctx context.Context, report func(missing error)) {
	tick := time.NewTicker(attachInterval)
	defer tick.Stop()
	last := fmt.Sprint(nil)
	for {
		missing, err := p.reattach(ctx)
		if err != nil {
			return
		}
		if reason := fmt.Sprint(missing); reason != last {
			report(missing)
			last = reason
			if missing != nil {
				p.config.Log.Warn("program missing, retrying", "error", missing)
			}
		}
		select {
		case <-tick.C:
		case <-p.resolver.Interfaces():
		case <-ctx.Done():
			return
		}
	}
}

// reattach restores missing attachments. It returns the reason if some are still
// missing, and an error if the data plane can't be used any more.
func (p *Plane) reattach(ctx context.Context) (missing, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	again, missing := p.programs.Reattach()
	for _, name := range again {
		missing = errors.Join(missing, p.handover.Reattach(name))
	}
	return missing, nil
}

// neighbourLimit is how long Attach waits for neighbours: by default the kernel requests
// an address three times, a second apart, before it gives up (arp(7)).
const neighbourLimit = 3 * time.Second

// awaitNeighbours waits until the kernel knows of each backend's next hop whether it
// answers. Packets that came before would find some backends missing, and would
// be sent otherwise than by other balancers.
func (p *Plane) awaitNeighbours(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, neighbourLimit)
	defer cancel()
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for p.pending() {
		select {
		case <-retry.C:
		case <-ctx.Done():
			return
		}
	}
}

// pending reports whether the kernel is still asking for a backend's neighbour.
func (c *catalog) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.services {
		if slices.ContainsFunc(s.now.slots, func(one slot) bool { return one.taken() && errors.Is(one.hopErr, nexthop.ErrPending) }) {
			return true
		}
	}
	return false
}

// Attachments lists the interfaces on which the program runs.
func (p *Plane) Attachments() []program.Attachment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.programs.Attachments()
}
