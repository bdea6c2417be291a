// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/generator"
	bareflector "fairlead.io/fairlead/internal/dataplane/xdp/reflector"
)

// series is a program behind a front that makes a number of flows.
type series struct {
	conditions
	front *generator.Front
}

// run measures n packets and returns the nanoseconds of each, those of the front
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

// open loads the group's programs, each behind a front for every number of
// flows.
func (w *workbench) open(ctx context.Context, g group) error {
	for _, s := range g.subjects {
		behind, err := w.load(ctx, g.traffic, s)
		if err != nil {
			return fmt.Errorf("program %s: %w", s.name, err)
		}
		for _, flows := range g.flows {
			front, err := behind(g.load(flows, false))
			if err != nil {
				return fmt.Errorf("program %s: %w", s.name, err)
			}
			if s.mode.Translates() {
				err = establish(behind, g.load(flows, true))
			}
			if err != nil {
				return fmt.Errorf("program %s: %w", s.name, errors.Join(err, front.Close()))
			}
			w.closes = append(w.closes, front.Close)
			w.series = append(w.series, &series{conditions{g.traffic, s, flows}, front})
		}
	}
	return nil
}

// establish opens the flows of a load: NAT has to have seen their first packets.
func establish(behind func(generator.Load) (*generator.Front, error), load generator.Load) error {
	front, err := behind(load)
	if err != nil {
		return err
	}
	_, err = front.Run(max(load.Flows, generator.MinFrames))
	return errors.Join(err, front.Close())
}

// load makes a program and returns what puts a front before it.
func (w *workbench) load(ctx context.Context, t traffic, s subject) (func(generator.Load) (*generator.Front, error), error) {
	if s.mode != 0 {
		plane, err := w.loadBalancer(ctx, t, s)
		if err != nil {
			return nil, err
		}
		program, err := plane.Program()
		if err != nil {
			return nil, err
		}
		return func(l generator.Load) (*generator.Front, error) { return generator.NewFront(program, l) }, nil
	}
	load := generator.LoadBare
	if s == reflector {
		load = bareflector.Load
	}
	program, err := load()
	if err != nil {
		return nil, err
	}
	w.closes = append(w.closes, program.Close)
	return func(l generator.Load) (*generator.Front, error) { return generator.NewFront(program, l) }, nil
}

func (w *workbench) loadBalancer(ctx context.Context, t traffic, s subject) (*xdp.Unattached, error) {
	plane, err := xdp.OpenUnattached(t.capacity(s))
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

// check makes sure that the programs have sent every packet to a backend: a
// packet that is refused is cheap.
func (w *workbench) check(ctx context.Context) error {
	for s, plane := range w.planes {
		stats, err := plane.Stats(ctx)
		if err != nil {
			return err
		}
		for exit, packets := range stats.Exits {
			if packets > 0 && exit != "forward_"+strings.Replace(s.name, "dnat", "nat", 1) {
				return fmt.Errorf("program %s: %d packets left by %s", s.name, packets, exit)
			}
		}
	}
	return nil
}

// close frees everything, the last first.
func (w *workbench) close() error {
	var errs []error
	for _, c := range slices.Backward(w.closes) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
