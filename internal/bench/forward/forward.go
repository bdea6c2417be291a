// SPDX-License-Identifier: Apache-2.0

// Package forward measures how many packets a second Fairlead forwards through
// a virtual wire, beside a bare reflector, iptables and nftables in the same
// place (DESIGN.md §10).
//
// A tester sends packets that are made in the kernel through a veth pair to a
// device under test, which sends them back; the tester counts what arrives
// (RFC 2544, section 6). Each device has a network namespace and a wire of its
// own, so that changing from one to the other changes nothing but the wire.
// Everything runs on one processor, one packet after the other: the time that a
// packet takes is the sum of what sender, device and sink take, and a device's
// own time is what is left when sender and sink are subtracted.
package forward

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/netlab"
)

// Config says what is measured.
type Config struct {
	// Labs is where the network that is measured is built.
	Labs netlab.Labs
	// Commit is that of this binary, for the report.
	Commit string
	// Quick measures less, in under a minute.
	Quick bool
	// Devices are the names of the devices to compare; none means all.
	Devices []string
	// Sizes are the frame sizes to send; none means those of the plan.
	Sizes []string
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Run builds the network, measures and removes the network again, also if it
// fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("bench forward needs root: it makes network namespaces and loads BPF programs")
	}
	report, err := bench.NewReport("forward", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	found, err := measure(ctx, cfg, p)
	if err != nil {
		return nil, err
	}
	return report, found.report(report)
}

// measure carries a plan out.
func measure(ctx context.Context, cfg Config, p plan) (found findings, err error) {
	cfg.progress("building %d devices under test", len(p.devices))
	b, err := newTestbed(ctx, cfg.Labs, p.devices)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	// Not before a device has made the kernel load its connection tracking.
	restore, err := p.widenConntrack()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	found = findings{}
	for i, c := range p.cases {
		cfg.progress("%d of %d: %s", i+1, len(p.cases), c)
		if found[c], err = b.compare(ctx, c, p); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
	}
	return found, nil
}

// compare measures all devices under the same conditions: a warm-up of each,
// then rounds in which each has its turn.
func (b *testbed) compare(ctx context.Context, c conditions, p plan) (_ map[string]rates, err error) {
	runs := make([]*run, 0, len(b.wires))
	defer func() {
		for _, r := range runs {
			err = errors.Join(err, r.close())
		}
	}()
	found := make(map[string]rates, len(b.wires))
	for _, w := range b.wires {
		r, err := newRun(b.lab, w, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.device.name, err)
		}
		runs = append(runs, r)
		if err := r.warmUp(ctx, p.warmUpOf(w.device, c)); err != nil {
			return nil, fmt.Errorf("%s: %w", w.device.name, err)
		}
	}
	for round := range p.rounds {
		// The other way round every second time: nobody always follows the same
		// neighbour.
		order := slices.Clone(runs)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, r := range order {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			rate, err := r.measure(p.duration)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.wire.device.name, err)
			}
			found[r.wire.device.name] = found[r.wire.device.name].add(rate)
		}
	}
	return found, nil
}
