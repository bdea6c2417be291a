// SPDX-License-Identifier: Apache-2.0

// Package churn measures the effect of backend changes on clients. In a lab of three
// balancers thousands of TCP connections, each of which checks that every byte comes
// back from the server that it started with, and hundreds of UDP flows are open
// while one of the balancers is lost; while servers are added, removed, drained and
// re-weighted at random; again while servers are killed and started, which health
// checks detect; and again while one of the balancers is lost as well.
//
// Agents are configured by their files, and only the servers' answers count.
// cmd/fairlab calls Run.
package churn

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

const (
	// connectionsPerFlow is the share of UDP flows, connectionsPerShort of
	// short-lived connections a second.
	connectionsPerFlow  = 6
	connectionsPerShort = 60
)

// Config configures Run.
type Config struct {
	bench.Config
	// Name of the lab, which must not exist yet.
	Name string
	// Connections are open all the time; Changes are made in each phase but the
	// first. Equal seeds draw equal changes.
	Connections, Changes int
	Seed                 uint64
	// Tracking of all services.
	Tracking lb.Tracking
}

// Run builds a lab, measures, and removes the lab, also when it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t, err := newTestbed(cfg.Tracking)
	if err != nil {
		return nil, err
	}
	b := bench.Bench[bench.Report]{Name: "churn", Stage: bench.Stage{
		Setup: func(ctx context.Context) (err error) {
			cfg.Log("seed %d", cfg.Seed)
			if t.Lab, err = cfg.Labs.Up(ctx, cfg.Name, t.topology); err != nil {
				return err
			}
			return t.awaitRoutes(ctx)
		},
		Remove: func(ctx context.Context) error {
			if t.Lab == nil {
				return nil
			}
			return t.Down(ctx)
		},
	}}
	for _, p := range cfg.phases(t) {
		b.Groups = append(b.Groups, bench.Single(bench.Cell[bench.Report]{
			Name: "churn" + p.suffix, Programs: t.topology.Programs(),
			Measure: func(ctx context.Context) (bench.Report, error) {
				var part bench.Report
				seen, err := p.measure(ctx)
				if err != nil {
					return part, err
				}
				p.report(&part, seen)
				if p.after != nil {
					err = p.after(ctx)
				}
				return part, err
			},
		}))
	}
	b.Report = bench.Parts(b.Groups)
	return bench.Run(ctx, cfg.Config, b)
}

// check returns an error if the configuration can't be measured. Connections beyond
// the limit of open files would count as broken; short-lived ones last some seconds.
func (c *Config) check() error {
	const others = 256
	if c.Connections < 1 || c.Changes < 1 {
		return fmt.Errorf("%d connections and %d changes: want at least one of each", c.Connections, c.Changes)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	want := c.Connections + c.flows() + int(c.short()*2*bench.ShortLines) + others
	if uint64(want) > limit.Cur {
		return fmt.Errorf("%d connections: need %d open files, the limit is %d", c.Connections, want, limit.Cur)
	}
	return nil
}

// flows is the number of UDP flows.
func (c *Config) flows() int { return max(1, c.Connections/connectionsPerFlow) }

// short is the number of short-lived connections a second.
func (c *Config) short() float64 { return max(1, float64(c.Connections)/connectionsPerShort) }
