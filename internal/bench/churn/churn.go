// SPDX-License-Identifier: Apache-2.0

// Package churn measures what clients notice while backends change (DESIGN.md
// §5.2 and §10): in a lab of three balancers thousands of TCP connections, each
// of which checks that every byte comes back from the server that it started
// with, and hundreds of UDP flows live on while one of the balancers is lost;
// while servers are added, removed, drained and re-weighted at random; again
// while servers are killed and return, which health checks find out; and again
// while one of the balancers is lost as well.
//
// In the story of DESIGN.md §1 it stands outside, where the clients are: it
// configures agents as people do, by their files, and believes only what comes
// back from the servers.
package churn

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/bench/client"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

const (
	// connectionsPerFlow and connectionsPerVisitor say how many UDP flows there
	// are, and how many visitors come in a second.
	connectionsPerFlow    = 6
	connectionsPerVisitor = 60
)

// Config says what is measured.
type Config struct {
	// Labs are where the lab of that name is made, which must not exist yet.
	Labs netlab.Labs
	Name string
	// Fairlead is the path of the executable that runs in the lab, Commit is its
	// own, for the report.
	Fairlead, Commit string
	// Quick says in the report that the numbers below are smaller than usual.
	Quick bool
	// Connections are open all the time; Changes are made in each phase but the
	// first. The same Seed draws the same changes.
	Connections, Changes int
	Seed                 uint64
	// Tracking is that of all services.
	Tracking lb.Tracking
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Run brings up a lab, measures, and takes the lab down again, also when it
// fails or ctx ends.
func Run(ctx context.Context, cfg Config) (report *bench.Report, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	report, err = bench.NewReport("churn", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	site, err := draw(cfg.Fairlead, cfg.Tracking)
	if err != nil {
		return nil, err
	}
	site.Lab, err = cfg.Labs.Up(ctx, cfg.Name, site.topology)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, site.Down(context.WithoutCancel(ctx))) }()
	return report, measure(ctx, cfg, site, report)
}

// check refuses what can't be measured, and more connections than there can be
// open files: those that can't be opened would count as broken. Visitors stay
// for some seconds.
func (c *Config) check() error {
	const others = 256
	if os.Geteuid() != 0 {
		return errors.New("bench churn needs root: it makes network namespaces and loads BPF programs")
	}
	if c.Connections < 1 || c.Changes < 1 {
		return fmt.Errorf("%d connections and %d changes: want at least one of each", c.Connections, c.Changes)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	want := c.Connections + c.flows() + int(c.visitors()*2*client.VisitLines) + others
	if uint64(want) > limit.Cur {
		return fmt.Errorf("%d connections: need %d open files, the limit is %d", c.Connections, want, limit.Cur)
	}
	return nil
}

// flows is how many UDP flows there are.
func (c *Config) flows() int { return max(1, c.Connections/connectionsPerFlow) }

// visitors is how many short-lived connections come in a second.
func (c *Config) visitors() float64 { return max(1, float64(c.Connections)/connectionsPerVisitor) }

// measure runs the phases.
func measure(ctx context.Context, cfg Config, site *site, report *bench.Report) error {
	cfg.progress("seed %d", cfg.Seed)
	if err := site.awaitRoutes(ctx); err != nil {
		return err
	}
	for _, p := range cfg.parts(site) {
		seen, err := p.measure(ctx, p.during)
		if err != nil {
			return err
		}
		p.report(report, seen)
		if p.after == nil {
			continue
		}
		if err := p.after(ctx); err != nil {
			return err
		}
	}
	return nil
}
