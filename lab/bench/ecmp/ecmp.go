// SPDX-License-Identifier: Apache-2.0

// Package ecmp measures how an upstream router follows the balancers (chapter 6 of
// the dissertation): whether its table is right, how soon it changes when balancers
// are drained, stopped or started, the loss when a balancer fails, and whether the
// throughput follows the numbers of balancers and servers. It drives
// agents as operators do, and observes the router's kernel and the clients.
// cmd/fairlab calls Run.
package ecmp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// Config configures Run.
type Config struct {
	bench.Config
	// Name begins the names of the labs, which are built one after the other.
	Name string
	// Settings are measured one after the other.
	Settings []Setting
	// Changes is how often the number of balancers is changed in each setting; if
	// Duration is not 0 it is changed for that long instead. Equal seeds draw equal
	// changes.
	Changes  int
	Duration time.Duration
	Seed     uint64
	// Interval is the least time between two changes; the next one also waits until
	// the table is right.
	Interval time.Duration
}

// Setting is a router, with or without a route reflector in front of it.
type Setting struct {
	Router    netlab.RouterKind
	Reflector bool
}

// String returns for example "frr with reflector".
func (s Setting) String() string {
	if s.Reflector {
		return string(s.Router) + " with reflector"
	}
	return string(s.Router)
}

// slug is the setting's part of a lab's name.
func (s Setting) slug() string {
	if s.Reflector {
		return string(s.Router) + "-rr"
	}
	return string(s.Router)
}

// bfd reports whether the balancers' peer has BFD: the lab's GoBGP doesn't.
func (s Setting) bfd() bool { return s.Reflector || s.Router != netlab.GoBGP }

// labels returns the labels of results; the empty family adds none.
func (s Setting) labels(f family) map[string]string {
	labels := map[string]string{"router": string(s.Router), "reflector": "no"}
	if s.Reflector {
		labels["reflector"] = "yes"
	}
	if f != "" {
		labels["family"] = string(f)
	}
	return labels
}

// enough reports whether that many changes in that time suffice.
func (c *Config) enough(changes int, passed time.Duration) bool {
	if c.Duration > 0 {
		return passed >= c.Duration
	}
	return changes >= c.Changes
}

// Run builds a lab for each setting, measures, and removes the lab, also when it
// fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if cfg.Changes < 1 && cfg.Duration <= 0 {
		return nil, fmt.Errorf("%d changes: want at least one", cfg.Changes)
	}
	if len(cfg.Settings) == 0 {
		return nil, errors.New("no router to measure")
	}
	b := bench.Bench[bench.Report]{Name: "ecmp", Stage: bench.Stage{Setup: func(context.Context) error {
		cfg.Log("seed %d", cfg.Seed)
		return nil
	}}}
	for i, setting := range cfg.Settings {
		topology, err := setting.topology(servers, echoPort)
		if err != nil {
			return nil, err
		}
		b.Groups = append(b.Groups, cfg.group(setting.String(), setting, topology, (*testbed).measureTables, (*testbed).measureUpdates, (*testbed).measureFaults))
		if i > 0 {
			continue // throughput is the same with all routers
		}
		if topology, err = setting.topology(throughputServers); err != nil {
			return nil, err
		}
		b.Groups = append(b.Groups, cfg.group(setting.String()+", throughput", setting, topology, (*testbed).measureThroughput))
	}
	b.Report = bench.Parts(b.Groups)
	return bench.Run(ctx, cfg.Config, b)
}

// group returns the group of one lab, in which parts are measured one after the other.
func (c *Config) group(name string, setting Setting, topology netlab.Topology, parts ...func(*testbed, context.Context) error) bench.Group[bench.Report] {
	measure := func(ctx context.Context) (report bench.Report, err error) {
		report.Ratios = map[string]float64{}
		t, err := newTestbed(ctx, c, setting, topology, &report)
		if err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, t.close(ctx)) }()
		if err := t.settle(ctx); err != nil {
			return report, err
		}
		for _, part := range parts {
			if err := part(t, ctx); err != nil {
				return report, err
			}
		}
		return report, nil
	}
	return bench.Single(bench.Cell[bench.Report]{Name: name, Programs: append(topology.Programs(), "wrk"), Measure: measure})
}

// random draws the changes of one part of a setting.
func (c *Config) random(part uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, part)) }
