// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/wire"
)

// series is a program with a front that makes a number of flows.
type series struct {
	conditions
	front *wire.Front
}

// run measures n packets and returns the nanoseconds per packet, those of the front
// included.
func (s *series) run(n int) (perPacket float64, err error) {
	err = bench.OnProcessor(func() (err error) {
		perPacket, err = s.front.Run(n)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("program %s: %w", s.name, err)
	}
	return perPacket, nil
}

// workbench holds the programs of one group.
type workbench struct {
	series []*series
	planes map[subject]*xdp.Unattached
	closes []func() error
}

// open loads the group's programs, each with a front for every number of flows.
func (w *workbench) open(ctx context.Context, g group) error {
	for _, s := range g.subjects {
		behind, err := w.load(ctx, g.workload, s)
		if err != nil {
			return fmt.Errorf("program %s: %w", s.name, err)
		}
		for _, flows := range g.flows {
			front, err := behind(g.load(flows, false))
			if err != nil {
				return fmt.Errorf("program %s: %w", s.name, err)
			}
			if s.mode.Translates() {
				err = establish(behind, g.load(flows, true), w.planes[s].Tables)
			}
			if err != nil {
				return fmt.Errorf("program %s: %w", s.name, errors.Join(err, front.Close()))
			}
			w.closes = append(w.closes, front.Close)
			w.series = append(w.series, &series{conditions{g.workload, s, flows}, front})
		}
	}
	return nil
}

// establish sends the first packets of all flows, which create the sessions of NAT, and
// makes them established ones, as there are no servers that answer.
func establish(behind func(wire.Load) (*wire.Front, error), load wire.Load, t *table.Tables) error {
	front, err := behind(load)
	if err != nil {
		return err
	}
	_, err = front.Run(max(load.Flows, wire.MinFrames))
	if err := errors.Join(err, front.Close()); err != nil {
		return err
	}
	var keys []uint64
	var sessions []table.BalancerNatSession
	err = table.EachRecord(t.Maps.NatPending, func(key uint64, s *table.BalancerNatSession) {
		established := *s
		established.Flags &^= uint8(table.BalancerNatFlagNAT_PENDING)
		established.State = uint8(table.BalancerNatStateNAT_ESTABLISHED)
		if !load.SYN {
			established.State = uint8(table.BalancerNatStateNAT_TWO_WAY)
		}
		keys, sessions = append(keys, key), append(sessions, established)
	})
	if err != nil {
		return err
	}
	_, err = t.Maps.NatSessions.BatchUpdate(keys, sessions, nil)
	return err
}

// load loads a program and returns the function that makes fronts for it.
func (w *workbench) load(ctx context.Context, t workload, s subject) (func(wire.Load) (*wire.Front, error), error) {
	if s.mode != 0 {
		plane, err := w.loadBalancer(ctx, t, s)
		if err != nil {
			return nil, err
		}
		program, err := plane.Program()
		if err != nil {
			return nil, err
		}
		return func(l wire.Load) (*wire.Front, error) { return wire.NewFront(program, l) }, nil
	}
	load := wire.LoadBare
	if s == reflector {
		load = wire.LoadBouncer
	}
	program, err := load()
	if err != nil {
		return nil, err
	}
	w.closes = append(w.closes, program.Close)
	return func(l wire.Load) (*wire.Front, error) { return wire.NewFront(program, l) }, nil
}

func (w *workbench) loadBalancer(ctx context.Context, t workload, s subject) (*xdp.Unattached, error) {
	plane, err := xdp.OpenUnattached(xdp.Config{Capacity: t.capacity(s), Seed: 1, Log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		return nil, err
	}
	w.closes = append(w.closes, plane.Close)
	w.planes[s] = plane
	for i := range t.vips {
		programmed, err := plane.Update(ctx, t.service(i, s))
		if err != nil {
			return nil, err
		}
		if programmed.InUse() != t.backends {
			return nil, fmt.Errorf("service %d: only %d of %d backends are in use", i, programmed.InUse(), t.backends)
		}
	}
	return plane, nil
}

// check makes sure that the programs have sent every packet to a backend: dropping
// is cheaper.
func (w *workbench) check(ctx context.Context) error {
	for s, plane := range w.planes {
		stats, err := plane.Stats(ctx)
		if err != nil {
			return err
		}
		for exit, packets := range stats.Exits {
			if packets > 0 && exit != s.exit() {
				return fmt.Errorf("program %s: %d packets left by %s", s.name, packets, exit)
			}
		}
	}
	return nil
}

func (w *workbench) close() error {
	var errs []error
	for _, c := range slices.Backward(w.closes) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
