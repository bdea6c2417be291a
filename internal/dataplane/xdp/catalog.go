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
			owners[s.number.Base] = &owner{vip: vip, s: s, now: s.now, idle: s.idle}
		}
		return nil
	})
	return owners, err
}

// serves reports whether there is a service of that number; mu is held.
func (c *catalog) serves(number uint32) bool {
	for _, s := range c.services {
		if s.number.Base == number {
			return true
		}
	}
	return false
}
