// SPDX-License-Identifier: Apache-2.0

// Package churn measures the effect of backend changes on clients. In a lab of three
// balancers thousands of TCP connections, each of which checks that every byte comes
// back from the server that it started with, and hundreds of UDP flows are open
// while one of the balancers is lost; while it joins again; while servers are added,
// removed, drained and re-weighted at random; again while one of the balancers is lost
// as well; and again while servers are killed and started, which health checks detect.
// All but the last are measured with kube-proxy's rules, too.
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
	// Name of the labs, which must not exist yet.
	Name string
	// Connections are open all the time; Changes are made in each phase in which backends
	// change. Equal seeds draw equal changes.
	Connections, Changes int
	Seed                 uint64
	// Tracking of all services.
	Tracking lb.Tracking
}

// Run builds a lab for each phase, measures, and removes the lab, also when it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := bench.Bench[bench.Report]{Name: "churn", Stage: bench.Stage{Setup: func(context.Context) error {
		cfg.Log("seed %d", cfg.Seed)
		return nil
	}}}
	for _, kubeProxy := range []bool{false, true} {
		phases, err := cfg.phases(kubeProxy)
		if err != nil {
			return nil, err
		}
		for _, p := range phases {
			b.Groups = append(b.Groups, bench.Single(p.cell()))
		}
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
