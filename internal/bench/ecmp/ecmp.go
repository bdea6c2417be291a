// SPDX-License-Identifier: Apache-2.0

// Package ecmp measures what chapter 6 of the dissertation measures: whether the
// upstream router's table is right, how soon it follows the balancers, whether
// throughput follows it, and what is lost when a balancer goes, in whichever
// way.
//
// In the story of DESIGN.md §1 it stands outside: it does to balancers what
// operators and accidents do, and believes the router's kernel and the clients.
package ecmp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/netlab"
)

// Config says what is measured.
type Config struct {
	// Labs are where labs are made, one after the other, whose names begin with
	// Name. None of them must exist yet.
	Labs netlab.Labs
	Name string
	// Fairlead is the path of the executable that runs in the labs, Commit is its
	// own, for the report.
	Fairlead, Commit string
	// Quick measures less, in under a minute for each setting.
	Quick bool
	// Settings are measured one after the other.
	Settings []Setting
	// Changes is how often the number of balancers is changed in each setting; if
	// Duration is not 0 it is changed for so long instead. The same Seed draws the
	// same changes.
	Changes  int
	Duration time.Duration
	Seed     uint64
	// Interval is between two changes; the next one comes as soon as the table is
	// right and has stayed so for a moment, but not sooner.
	Interval time.Duration
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

// Setting is a router, and whether there is a reflector before it.
type Setting struct {
	Router    netlab.RouterKind
	Reflector bool
}

// String is for people: "frr with reflector".
func (s Setting) String() string {
	if s.Reflector {
		return string(s.Router) + " with reflector"
	}
	return string(s.Router)
}

// bfd reports whether what the balancers peer with has BFD: the lab's GoBGP
// doesn't.
func (s Setting) bfd() bool { return s.Reflector || s.Router != netlab.GoBGP }

// labels are those of results; more are names and values in turn.
func (s Setting) labels(more ...string) map[string]string {
	labels := map[string]string{"router": string(s.Router), "reflector": "no"}
	if s.Reflector {
		labels["reflector"] = "yes"
	}
	for i := 0; i+1 < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	return labels
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// enough reports whether so many changes in that time are what was asked for.
func (c *Config) enough(changes int, passed time.Duration) bool {
	if c.Duration > 0 {
		return passed >= c.Duration
	}
	return changes >= c.Changes
}

func (c *Config) check() error {
	if os.Geteuid() != 0 {
		return errors.New("bench ecmp needs root: it makes network namespaces and loads BPF programs")
	}
	if c.Changes < 1 && c.Duration <= 0 {
		return fmt.Errorf("%d changes: want at least one", c.Changes)
	}
	if len(c.Settings) == 0 {
		return errors.New("no router to measure")
	}
	return nil
}

// Run brings up a lab for each setting, measures, and takes it down again, also
// when it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	report, err := bench.NewReport("ecmp", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	cfg.progress("seed %d", cfg.Seed)
	for n, how := range cfg.Settings {
		// Throughput is the balancers' matter, not the router's.
		if err := cfg.runSetting(ctx, how, n == 0, report); err != nil {
			return nil, fmt.Errorf("%s: %w", how, err)
		}
	}
	return report, nil
}

func (c *Config) runSetting(ctx context.Context, how Setting, throughput bool, report *bench.Report) (err error) {
	began := time.Now()
	s, err := bringUp(ctx, c.Labs, fmt.Sprintf("%s-%s", c.Name, how.slug()), c.Fairlead, how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.takeDown(ctx)) }()
	stalls := watchStalls()
	err = c.measure(ctx, s, how, throughput, report)
	stalled := stalls.stop()
	report.Add("stall_ms", "ms", bench.Runs{milliseconds(stalled)}, how.labels())
	c.progress("%s: measured in %.0f s, in which a process had to wait for a processor for %.0f ms at most",
		how, time.Since(began).Seconds(), milliseconds(stalled))
	return err
}

// measure runs the parts of a setting.
func (c *Config) measure(ctx context.Context, s *site, how Setting, throughput bool, report *bench.Report) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	parts := []func() error{
		func() error { return s.runTables(ctx, c, how, report) },
		func() error { return s.runUpdates(ctx, c, how, report) },
		func() error { return s.runLosses(ctx, c, how, report) },
	}
	if throughput {
		parts = append(parts, func() error { return s.runThroughput(ctx, c, how, report) })
	}
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// slug is the setting's part of a lab's name.
func (s Setting) slug() string {
	if s.Reflector {
		return string(s.Router) + "-rr"
	}
	return string(s.Router)
}

// random draws the changes of one part of a setting.
func (c *Config) random(part uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, part)) }
