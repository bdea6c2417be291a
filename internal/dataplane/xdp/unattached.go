// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// Unattached is a data plane whose program is attached nowhere, for measurements and
// tests of the program, which put packets into it themselves. Nothing sweeps its tables
// in the background, and its programs aren't self-tested.
type Unattached struct {
	*Plane
	// Hops is how backends are reached.
	Hops Resolver
	// Tables that the program reads and writes.
	Tables *table.Tables
	// Programs loads programs that use the tables, and counts their exits.
	Programs *program.Set
}

// OpenUnattached opens a data plane in which backends are reached as hops says; nil
// reaches all of them. Without a pin directory its tables end with it.
func OpenUnattached(cfg Config, hops Resolver) (*Unattached, error) {
	if hops == nil {
		hops = fixedHops{}
	}
	cfg.test = func(program.Features) error { return nil }
	p, err := newPlane(cfg, hops)
	if err != nil {
		return nil, err
	}
	return &Unattached{Plane: p, Hops: hops, Tables: p.tables, Programs: p.programs}, nil
}

// Program is one that suits the services as they are now, as Attach would take
// it. It is closed with the data plane.
func (u *Unattached) Program() (program *ebpf.Program, err error) {
	err = u.loader.program(context.Background(), 0, u.programs.Suits, func() error {
		program = u.programs.Program()
		return nil
	})
	return program, err
}

// SweepFlows deletes the flow records that no service will need when so much time has
// passed.
func (u *Unattached) SweepFlows(later time.Duration) error {
	return u.sweeper.sweep(u.clock() + later)
}

// SweepSessions deletes the NAT sessions that have expired or have no service.
func (u *Unattached) SweepSessions() error {
	for {
		if last, err := u.sweeper.sweepSessions(); last || err != nil {
			return err
		}
	}
}

// Recheck queues services that a VIP that has come or gone concerns.
func (u *Unattached) Recheck() { u.recheck(u.addresses, u.stale.Add) }

// SweepClients deletes the clients that no service has to remember.
func (u *Unattached) SweepClients() error { return u.sweeper.sweepClients() }

// SlotsInUse is how many backends a service has, with those that have left it and whose
// flows are remembered.
func (u *Unattached) SlotsInUse(vip lb.VIP) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(slotNumbers(u.services[vip].now.slots))
}

// Probes counts the probes of open paths by outcome.
func (u *Unattached) Probes() (map[string]uint64, error) { return u.paths.sender.Counters() }
