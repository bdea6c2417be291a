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
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/wire"
)

// series is a program with a front on each processor that makes a number of flows.
type series struct {
	conditions
	fronts []*wire.Front
}

// run measures n packets on each processor and returns the nanoseconds in which all of
// them together had one, including the front's.
func (s *series) run(n int) (perPacket float64, err error) {
	rates := make([]float64, len(s.fronts))
	err = bench.OnProcessors(len(s.fronts), func(nth int) error {
		perPacket, err := s.fronts[nth].Run(n)
		rates[nth] = 1 / perPacket
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("program %s: %w", s.name, err)
	}
	var all float64
	for _, rate := range rates {
		all += rate
	}
	return 1 / all, nil
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
			fronts, err := w.fronts(g, s, flows, behind)
			if err != nil {
				return fmt.Errorf("program %s: %w", s.name, err)
			}
			for more := range fronts {
				w.series = append(w.series, &series{conditions{g.workload, s, flows, more}, fronts[:1+more]})
			}
		}
	}
	return nil
}

// fronts returns a front for each processor, and adds packets that NAT and records
// need.
func (w *workbench) fronts(g group, s subject, flows int, behind func(wire.Load) (*wire.Front, error)) (all []*wire.Front, err error) {
	for nth := range g.processors() {
		front, err := behind(g.load(flows, nth, false))
		if err != nil {
			return nil, err
		}
		w.closes = append(w.closes, front.Close)
		all = append(all, front)
		if s.mode.Translates() || s.tracking == lb.TrackingFull {
			err = establish(behind, g.load(flows, nth, true), w.planes[s].Tables)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// establish sends the first packets of all flows, which create sessions of NAT or
// records, and makes them established ones, as there are neither servers that answer nor
// clients that go on. The tables of those that aren't established have room for a part of
// the flows at a time.
func establish(behind func(wire.Load) (*wire.Front, error), load wire.Load, t *table.Tables) error {
	front, err := behind(load)
	if err != nil {
		return err
	}
	n := max(min(load.Flows, 1<<16), wire.MinFrames)
	for sent := 0; sent < load.Flows && err == nil; sent += n {
		_, err = front.Run(n)
		err = errors.Join(err, confirm(t, load.SYN))
	}
	return errors.Join(err, front.Close())
}

// confirm makes all sessions and records established ones.
func confirm(t *table.Tables, tcp bool) error {
	var errs []error
	t.Pending.Each(func(key uint64, s *table.BalancerNatSession) {
		s.Flags &^= uint8(table.BalancerNatFlagNAT_PENDING)
		s.State = uint8(table.BalancerNatStateNAT_ESTABLISHED)
		if !tcp {
			s.State = uint8(table.BalancerNatStateNAT_TWO_WAY)
		}
		errs = append(errs, t.Sessions.Put(key, s))
		t.Pending.Delete(key)
	})
	var keys []uint64
	errs = append(errs, table.EachRecord(t.Maps.FlowsPending, func(key uint64, f *table.BalancerFlow) {
		f.Open = uint8(table.BalancerFlowOpenFLOW_OPEN)
		keys, errs = append(keys, key), append(errs, t.Maps.Flows.Put(key, f))
	}))
	if len(keys) > 0 {
		_, err := t.Maps.FlowsPending.BatchDelete(keys, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
