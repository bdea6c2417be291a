// SPDX-License-Identifier: Apache-2.0

// Package health measures what health checks cost: the processor time of a
// monitor that probes thousands of backends every second, the kernel's work for
// its sockets included.
//
// In the story of DESIGN.md §1 it takes the store's place beside the monitor.
// The backends are addresses of the loopback interface, behind which one process
// answers for all; its time is not counted.
package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/lb"
)

// Config says what is measured.
type Config struct {
	// Servers is the command, with its arguments, that runs Serve.
	Servers []string
	// Commit is that of this binary, for the report.
	Commit string
	// Quick measures less, in under a minute.
	Quick bool
	// Backends are how many are probed, each once in a second.
	Backends int
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// plan says how long is measured.
type plan struct {
	// warmUp covers the first probe of every backend.
	warmUp time.Duration
	rounds int
	round  time.Duration
}

func newPlan(quick bool) plan {
	if quick {
		return plan{warmUp: 3 * time.Second, rounds: 3, round: 4 * time.Second}
	}
	return plan{warmUp: 5 * time.Second, rounds: 7, round: 10 * time.Second}
}

// maxBackends are the addresses that backendAt has.
const maxBackends = 1 << 16

// Run measures; nothing is left of it, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (report *bench.Report, err error) {
	if cfg.Backends < 1 || cfg.Backends > maxBackends {
		return nil, fmt.Errorf("%d backends: want 1 to %d", cfg.Backends, maxBackends)
	}
	report, err = bench.NewReport("health", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	servers, err := startServers(ctx, cfg.Servers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	return report, measureAll(ctx, cfg, newPlan(cfg.Quick), servers.port, report)
}

// measureAll measures each kind of check against servers at that port.
func measureAll(ctx context.Context, cfg Config, p plan, port uint16, report *bench.Report) error {
	for _, kind := range []lb.HealthType{lb.HealthTCP, lb.HealthHTTP} {
		cfg.progress("%s: %d backends each second, %d rounds of %s", kind, cfg.Backends, p.rounds, p.round)
		found, err := measure(ctx, kind, cfg.Backends, port, p)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := found.report(report, kind, cfg.Backends); err != nil {
			return err
		}
	}
	return nil
}
