// SPDX-License-Identifier: Apache-2.0

// Package packet measures what one packet costs inside the balancer's program
// (DESIGN.md §10), without any network.
//
// BPF_PROG_TEST_RUN runs a front that makes the next packet of a load and calls
// the program under test. The same front before a program that does nothing
// shows the front's own cost, which is subtracted. All programs and numbers of
// flows that are compared take turns within a round.
package packet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/dataplane/xdp"
)

// Config says what is measured.
type Config struct {
	// Commit is that of this binary, for the report.
	Commit string
	// Quick measures less, in under a minute.
	Quick bool
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Run measures; nothing is left of it, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("bench packet needs root: it loads BPF programs")
	}
	report, err := bench.NewReport("packet", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	found, err := measureAll(ctx, cfg, newPlan(cfg.Quick))
	if err != nil {
		return nil, err
	}
	return report, found.report(report)
}

// measureAll carries a plan out, one group after the other.
func measureAll(ctx context.Context, cfg Config, p plan) (findings, error) {
	found := findings{}
	for i, g := range p.groups {
		cfg.progress("%d of %d: %s, %d programs, %d numbers of flows", i+1, len(p.groups), g.traffic, len(g.subjects), len(g.flows))
		if err := measure(ctx, g, p, found); err != nil {
			return nil, fmt.Errorf("%s: %w", g.traffic, err)
		}
	}
	return found, nil
}

// measure compares the programs of a group: a warm-up of each, then rounds in
// which each has its turn with each number of flows.
func measure(ctx context.Context, g group, p plan, found findings) (err error) {
	w := &workbench{planes: map[subject]*xdp.Unattached{}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx, g); err != nil {
		return err
	}
	for _, s := range w.series {
		if _, err := s.run(max(p.packets, 2*s.flows)); err != nil {
			return err
		}
	}
	for round := range p.rounds {
		// The other way round every second time: nobody always follows the same
		// neighbour.
		order := slices.Clone(w.series)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			if err := ctx.Err(); err != nil {
				return err
			}
			perPacket, err := s.run(p.packets)
			if err != nil {
				return err
			}
			found[s.conditions] = append(found[s.conditions], perPacket)
		}
	}
	return w.check(ctx)
}
