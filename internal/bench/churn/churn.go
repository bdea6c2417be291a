// SPDX-License-Identifier: Apache-2.0

// Package churn measures what clients notice while backends change (DESIGN.md
// §5.2 and §10): in a lab of three balancers thousands of TCP connections, each
// of which checks that every byte comes back from the server that it started
// with, and hundreds of UDP flows live on while servers are added, removed,
// drained and re-weighted at random; then again while one of the balancers is
// lost as well.
//
// In the story of DESIGN.md §1 it stands outside, where the clients are: it
// configures agents as people do, by their files, and believes only what comes
// back from the servers.
package churn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/netlab"
)

const (
	// roundPace is the time between two rounds, in each of which every service is
	// changed once.
	roundPace = 300 * time.Millisecond
	// patience is how long TCP may take to repair losses before a connection
	// counts as broken.
	patience = 10 * time.Second
	// connectionsPerFlow and connectionsPerVisitor say how many UDP flows there
	// are, and how many visitors come in a second.
	connectionsPerFlow    = 6
	connectionsPerVisitor = 60
)

// Bench is one run.
type Bench struct {
	// Labs are where the lab is made. Their progress is also the bench's.
	Labs netlab.Labs
	// Fairlead is the path of the executable that runs in the lab.
	Fairlead string
	// Name of the lab, which must not exist yet.
	Name string
	// Commit is that of the executable, Quick says that the numbers below are
	// smaller than usual; both are only reported.
	Commit string
	Quick  bool
	// Connections are open all the time; Changes are made in each of the two
	// phases. The same Seed draws the same changes.
	Connections, Changes int
	Seed                 uint64
}

// phase is a run whose lab is up.
type phase struct {
	Bench
	site    *site
	random  *rand.Rand
	changes changeCounts
}

// Run brings up a lab, measures, and takes the lab down again, also when it
// fails.
func (b Bench) Run(ctx context.Context) (report *bench.Report, err error) {
	if b.Connections < 1 || b.Changes < 1 {
		return nil, fmt.Errorf("%d connections and %d changes: want at least one of each", b.Connections, b.Changes)
	}
	if err := b.checkFiles(); err != nil {
		return nil, err
	}
	report, err = bench.NewReport("churn", b.Commit, b.Quick)
	if err != nil {
		return nil, err
	}
	site, err := draw(b.Fairlead)
	if err != nil {
		return nil, err
	}
	site.Lab, err = b.Labs.Up(ctx, b.Name, site.topology)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, site.Down(context.WithoutCancel(ctx))) }()
	b.progress("seed %d", b.Seed)
	random := rand.New(rand.NewPCG(b.Seed, 0))
	return report, b.measure(ctx, report, site, random)
}

// measure runs both phases.
func (b Bench) measure(ctx context.Context, report *bench.Report, site *site, random *rand.Rand) error {
	alone := phase{b, site, random, changeCounts{}}
	seen, err := alone.run(ctx, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	seen.report(report, "")
	alone.changes.report(report, "", b.Seed)
	report.Judge(fmt.Sprintf("connections broken by %d random backend changes under load", alone.changes.total()),
		"DESIGN.md §10", bench.AtMost(0), float64(seen.tcpBroken()))

	lossy := phase{b, site, random, changeCounts{}}
	seen, err = lossy.run(ctx, site.loseBalancer)
	if err != nil {
		return err
	}
	const suffix = "_balancer_loss"
	seen.report(report, suffix)
	lossy.changes.report(report, suffix, b.Seed)
	return nil
}

// run changes backends under load. Something else happens in the middle.
func (p *phase) run(ctx context.Context, middle func(context.Context) error) (counts, error) {
	l := &load{
		dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.site.Dial(ctx, "client", network, address)
		},
		services: p.site.services, patience: patience, progress: p.progress,
	}
	started := time.Now()
	l.start(ctx, p.Connections, max(1, p.Connections/connectionsPerFlow), max(1, float64(p.Connections)/connectionsPerVisitor))
	p.progress("%d connections are open after %.1f s", p.Connections, time.Since(started).Seconds())
	err := p.churn(l.over, middle)
	seen, failed := l.stop()
	if err := errors.Join(failed, err, ctx.Err()); err != nil {
		return seen, err
	}
	p.progress("%d lines were answered, %d connections broke", seen.lines, seen.tcpBroken())
	return seen, p.site.check(ctx)
}

// churn makes all changes.
func (p *phase) churn(ctx context.Context, middle func(context.Context) error) error {
	ticker := time.NewTicker(roundPace)
	defer ticker.Stop()
	half := false
	for done := 0; done < p.Changes; done = p.changes.total() {
		if !half && done >= p.Changes/2 {
			half = true
			p.progress("%d of %d changes are done", done, p.Changes)
			if err := middle(ctx); err != nil {
				return err
			}
		}
		if err := p.round(ctx); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// round changes each service once, all with one reload, as far as there are
// changes left to do.
func (p *phase) round(ctx context.Context) error {
	var arriving []func()
	left := p.Changes - p.changes.total()
	for _, s := range p.site.services[:min(left, len(p.site.services))] {
		c := s.weights.randomChange(p.random)
		s.weights[c.server] = c.weight
		p.changes[c.kind]++
		switch name := s.names[c.server]; c.kind {
		case removed:
			s.presence.leave(name)
		case added:
			arriving = append(arriving, func() { s.presence.arrive(name) })
		default:
		}
	}
	if err := p.site.configure(ctx); err != nil {
		return err
	}
	for _, arrive := range arriving {
		arrive()
	}
	return nil
}

// checkFiles refuses more connections than there can be open files: those that
// can't be opened would count as broken. Visitors stay for some seconds.
func (b Bench) checkFiles() error {
	const others = 256
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	want := b.Connections + b.Connections/connectionsPerFlow + b.Connections*visitLines*2/connectionsPerVisitor + others
	if uint64(want) > limit.Cur {
		return fmt.Errorf("%d connections: need %d open files, the limit is %d", b.Connections, want, limit.Cur)
	}
	return nil
}

func (b Bench) progress(format string, args ...any) {
	if b.Labs.Progress != nil {
		b.Labs.Progress(fmt.Sprintf(format, args...))
	}
}
