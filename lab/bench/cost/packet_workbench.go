// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/wire"
)

// workbench holds the programs of one group.
type workbench struct {
	packets int // in one measurement
	tested  map[subject]*tested
}

// tested is a program that is measured under several conditions.
type tested struct {
	program *ebpf.Program
	close   func() error
	// plane has the program; nil for the reference programs.
	plane *xdp.Unattached
	// cells is the number of cells that use the program.
	cells int
}

// cell measures a program with a front on each processor that makes a number of flows.
func (w *workbench) cell(c conditions) bench.Cell[float64] {
	var fronts []*wire.Front
	return bench.Cell[float64]{
		Name: c.String(), Reference: c.subject == bare,
		Stage: bench.Stage{
			Setup: func(ctx context.Context) (err error) {
				if fronts, err = w.open(ctx, c); err == nil {
					err = w.warmUp(ctx, c, fronts)
				}
				return err
			},
			Remove: func(ctx context.Context) error { return w.close(ctx, c, fronts) },
		},
		Measure: func(context.Context) (float64, error) { return measure(fronts, w.packets) },
	}
}

// open returns the fronts, after the packets that NAT and records need.
func (w *workbench) open(ctx context.Context, c conditions) (fronts []*wire.Front, err error) {
	t := w.tested[c.subject]
	if t == nil {
		if t, err = load(ctx, c); err != nil {
			return nil, err
		}
		w.tested[c.subject] = t
	}
	t.cells++
	for nth := range c.processors {
		if c.mode.Translates() || c.tracking == lb.TrackingFull {
			if err := establish(ctx, t, c.load(c.flows, nth, true)); err != nil {
				return fronts, err
			}
		}
		front, err := wire.NewFront(t.program, c.load(c.flows, nth, false))
		if err != nil {
			return fronts, err
		}
		fronts = append(fronts, front)
	}
	return fronts, nil
}

// load loads a program, with the services that it balances.
func load(ctx context.Context, c conditions) (t *tested, err error) {
	if c.mode == 0 {
		program := wire.LoadBare
		if c.subject == reflector {
			program = wire.LoadBouncer
		}
		loaded, err := program()
		if err != nil {
			return nil, err
		}
		return &tested{program: loaded, close: loaded.Close}, nil
	}
	plane, err := xdp.OpenUnattached(xdp.Config{Capacity: c.capacity(c.subject), Seed: 1, Log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		return nil, err
	}
	t = &tested{plane: plane, close: plane.Close}
	for i := 0; i < c.vips && err == nil; i++ {
		err = balance(ctx, plane, c, i)
	}
	if err == nil {
		t.program, err = plane.Program()
	}
	if err != nil {
		return nil, errors.Join(err, plane.Close())
	}
	return t, nil
}

// balance programs service i.
func balance(ctx context.Context, plane *xdp.Unattached, c conditions, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	programmed, err := plane.Update(ctx, c.service(i, c.subject))
	if err == nil && programmed.InUse() != c.backends {
		err = fmt.Errorf("service %d: only %d of %d backends are in use", i, programmed.InUse(), c.backends)
	}
	return err
}

// establish sends the first packets of all flows, which create sessions of NAT or
// records, and makes them established ones, as there are neither servers that answer nor
// clients that go on. The tables of those that aren't established have room for a part of
// the flows at a time.
func establish(ctx context.Context, t *tested, load wire.Load) error {
	front, err := wire.NewFront(t.program, load)
	if err != nil {
		return err
	}
	n := max(min(load.Flows, 1<<16), wire.MinFrames)
	for sent := 0; sent < load.Flows && err == nil; sent += n {
		_, err = front.Run(n)
		err = errors.Join(err, confirm(t.plane.Tables, load.SYN), ctx.Err())
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

// warmUp sends the packets that fill tables and caches, in parts between which it can be
// interrupted.
func (w *workbench) warmUp(ctx context.Context, c conditions, fronts []*wire.Front) error {
	passes := 2
	if c.tracking == lb.TrackingFull {
		passes = 8 // records are limited to a third of the table a second
	}
	for sent := 0; sent < max(w.packets, passes*c.flows); sent += w.packets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := measure(fronts, w.packets); err != nil {
			return err
		}
	}
	return nil
}

// measure sends n packets on each processor and returns the nanoseconds in which all of
// them together had one, including the front's.
func measure(fronts []*wire.Front, n int) (perPacket float64, err error) {
	rates := make(bench.Runs, len(fronts))
	err = bench.OnProcessors(len(fronts), func(nth int) error {
		perPacket, err := fronts[nth].Run(n)
		rates[nth] = 1 / perPacket
		return err
	})
	return 1 / rates.Sum(), err
}

// close closes the fronts, and the program behind the last of its cells. It is an error if the
// program hasn't sent every packet to a backend: dropping is cheaper.
func (w *workbench) close(ctx context.Context, c conditions, fronts []*wire.Front) error {
	var errs []error
	for _, front := range fronts {
		errs = append(errs, front.Close())
	}
	t := w.tested[c.subject]
	if t == nil {
		return nil
	}
	if t.cells--; t.cells > 0 {
		return errors.Join(errs...)
	}
	delete(w.tested, c.subject)
	if t.plane != nil {
		errs = append(errs, c.check(ctx, t.plane))
	}
	return errors.Join(append(errs, t.close())...)
}

// check returns an error if packets have left the program by another exit than the subject's.
func (s subject) check(ctx context.Context, plane *xdp.Unattached) error {
	stats, err := plane.Stats(ctx)
	if err != nil {
		return err
	}
	for exit, packets := range stats.Exits {
		if packets > 0 && exit != s.exit() {
			return fmt.Errorf("%d packets left by %s", packets, exit)
		}
	}
	return nil
}
