// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// service is the state of one service in the tables.
type service struct {
	table.Service
	now *version // the version that packets see
	// deleting is set once the VIP is no longer in the table.
	deleting bool
	// backends are the service's as last updated, sorted; known is false if only an
	// earlier agent knew them. idle is how long its flows may be silent, with idleSlack.
	backends []lb.Backend
	known    bool
	idle     time.Duration
	// left counts the slots of backends that have left the service.
	left int
	// features of the program that the service needs.
	features program.Features
	// members are the nodes that share it.
	members members
	// started is when the service has started (hasNoPast); 0 if an earlier agent knew it.
	started time.Duration
	// sweepAt is when its flow records are due to be read.
	sweepAt  time.Duration
	leaving  []leaver
	gone     dataplane.Traffic
	flows    flowCounts
	sessions int // of NAT, when they were last counted
}

// owner is a service while its records are read without holding the plane: as it
// was when reading began.
type owner struct {
	vip  lb.VIP
	s    *service
	now  *version
	idle time.Duration
}

// Delete removes the VIP from the table and frees the service's elements.
func (p *Plane) Delete(ctx context.Context, vip lb.VIP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	return p.delete(vip)
}

// delete deletes a service. After an error it is still one of the plane's; delete can
// be repeated.
func (p *Plane) delete(vip lb.VIP) error {
	s, known := p.services[vip]
	if !known {
		return nil
	}
	if err := p.tables.VIPs.Delete(table.VIPKey(vip)); err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	now := p.tables.Grace.Now()
	s.deleting, p.deleted = true, now
	left, err := p.members.replace(s.members, nil)
	s.members = left
	if err = errors.Join(err, p.addresses.remove(vip)); err == nil {
		err = p.tables.Free(&s.Service, now)
	}
	if err != nil {
		return fmt.Errorf("vip %s: %w", vip, err)
	}
	delete(p.services, vip)
	p.paths.repoint(vip, nil, 0)
	p.programs.Recount(s.features, 0)
	p.resolver.Forget(vip)
	for _, l := range s.leaving {
		if l.moved {
			p.tables.Counters.Retire(l.counter, now)
		}
	}
	return nil
}

// Prune deletes every service that is not kept, adopted ones included.
func (p *Plane) Prune(ctx context.Context, keep []lb.VIP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return err
	}
	kept := make(map[lb.VIP]bool, len(keep))
	for _, vip := range keep {
		kept[vip] = true
	}
	var errs []error
	for vip := range p.services {
		if !kept[vip] {
			errs = append(errs, p.delete(vip))
		}
	}
	return errors.Join(append(errs, p.members.disown())...)
}
