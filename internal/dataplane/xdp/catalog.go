// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"sync"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// catalog has the services in the tables, and the lock under which they change.
type catalog struct {
	tables *table.Tables
	// shown is called when packets see a version of a service with its backends from base on,
	// before the elements of the one before are retired.
	shown func(vip lb.VIP, v *version, base uint32)
	// mu guards the fields below and every write to the tables. It is never held
	// while waiting for a grace period, the kernel's verifier, the resolver or a
	// caller.
	mu       sync.Mutex
	closed   bool
	services map[lb.VIP]*service
}

// ready returns an error if a call has to end; mu is held.
func (c *catalog) ready(ctx context.Context) error {
	if c.closed {
		return table.ErrClosed
	}
	return ctx.Err()
}

// with calls do with mu held, unless the call has to end.
func (c *catalog) with(ctx context.Context, do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return err
	}
	return do()
}

// owners are the services by their numbers.
func (c *catalog) owners(ctx context.Context) (owners map[uint32]*owner, err error) {
	err = c.with(ctx, func() error {
		owners = make(map[uint32]*owner, len(c.services))
		for vip, s := range c.services {
			owners[s.Number.Base] = &owner{vip: vip, s: s, now: s.now, idle: s.idle}
		}
		return nil
	})
	return owners, err
}

// show makes packets see the next version of a service, if it differs for them from the present
// one; mu is held.
func (c *catalog) show(vip lb.VIP, s *service, next *version, w table.Writes) error {
	w.Shown = func(backends table.Extent) { c.shown(vip, next, backends.Base) }
	done, err := c.tables.Commit(&s.Service, &w)
	if err != nil {
		return err
	}
	if done.Shown {
		c.services[vip] = s
		s.leave(c.tables, next, done)
	}
	s.now = next
	return nil
}

// serves reports whether there is a service of that number; mu is held.
func (c *catalog) serves(number uint32) bool {
	for _, s := range c.services {
		if s.Number.Base == number {
			return true
		}
	}
	return false
}
