// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"fairlead.io/fairlead/lab/bench"
)

// phase is one measurement in the lab.
type phase struct {
	*Config
	testbed *testbed
	random  *rand.Rand
	changes changeCounts
	// failures happen among the changes; nil: none.
	failures *failures
	// suffix of the names of the results.
	suffix string
	// during happens under load, after follows it; nil: nothing.
	during, after func(context.Context) error
	// claim is about broken connections, with the number of changes; empty: none.
	// steady claims that no UDP flow moves either.
	claim  string
	steady bool
}

// phases are all phases. The connections of the first one need ring entries that have
// never changed.
func (c *Config) phases(t *testbed) []*phase {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	nothing := func(context.Context) error { return nil }
	all := []*phase{
		{suffix: "_balancer_loss", after: t.recoverBalancer, steady: true,
			claim: "connections broken by the loss of one balancer of three while no backend changes"},
		{suffix: "", claim: "connections broken by %d random backend changes under load"},
		{suffix: "_health", claim: "connections to living servers broken by %d such changes while others are killed and started again"},
		{suffix: "_balancer_loss_changes"},
	}
	for _, p := range all {
		p.Config, p.testbed, p.random, p.changes = c, t, random, changeCounts{}
		p.during = func(ctx context.Context) error { return p.churn(ctx, nothing) }
	}
	all[0].during = t.loseOnly
	all[2].failures = &failures{testbed: t, random: random}
	all[3].during = func(ctx context.Context) error { return all[3].churn(ctx, t.loseBalancer) }
	return all
}

// report adds the results and verdicts of the phase.
func (p *phase) report(r *bench.Report, seen bench.Counts) {
	seen.Report(r, p.suffix)
	labels := map[string]string{"seed": fmt.Sprint(p.Seed), "tracking": p.Tracking.String()}
	p.changes.report(r, p.suffix, labels)
	switch {
	case p.steady:
		r.Judge(p.claim, bench.Documented, bench.AtMost(0), float64(seen.TCPBroken()))
		r.Judge("UDP flows moved by it", bench.Documented, bench.AtMost(0), float64(seen.Moved))
	case p.claim != "":
		r.Judge(fmt.Sprintf(p.claim, p.changes.total()), bench.Documented, bench.AtMost(0), float64(seen.TCPBroken()))
	}
	if p.failures != nil {
		r.Add("deaths"+p.suffix, "servers", bench.Runs{float64(p.testbed.deaths.Count())}, nil)
	}
}

const (
	// roundInterval is the least time between two rounds, in each of which every
	// service is changed once. It is longer than UDP flows are learned: they only stay
	// if they are learned before a change. It is shorter than TCP clients are silent,
	// so that connections are idle during several changes.
	roundInterval = 450 * time.Millisecond
	// tcpTimeout is longer than TCP needs to repair losses.
	tcpTimeout = 10 * time.Second
)

// measure runs the phase; servers are checked only where some fail.
func (p *phase) measure(ctx context.Context) (bench.Counts, error) {
	if p.failures == nil {
		return p.run(ctx)
	}
	if err := p.testbed.setHealthCheck(ctx, healthCheck()); err != nil {
		return bench.Counts{}, err
	}
	seen, err := p.run(ctx)
	if err != nil {
		return seen, err
	}
	return seen, p.testbed.setHealthCheck(ctx, nil)
}

func (p *phase) run(ctx context.Context) (bench.Counts, error) {
	l := &bench.Load{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.testbed.Dial(ctx, "client", network, address)
		},
		Targets: p.testbed.targets(), Deaths: &p.testbed.deaths, Timeout: tcpTimeout, Progress: p.Log,
	}
	started := time.Now()
	l.Start(ctx, p.Connections, p.flows(), p.short())
	p.Log("%d connections are open after %.1f s", p.Connections, time.Since(started).Seconds())
	err := p.during(l.Over())
	seen, failed := l.Stop()
	// The first error causes the others.
	if err := cmp.Or(ctx.Err(), failed, err); err != nil {
		return seen, err
	}
	p.Log("%d lines were answered, %d connections broke", seen.Lines, seen.TCPBroken())
	return seen, p.testbed.check(ctx)
}

// churn makes all changes, one half before the middle and one after it.
func (p *phase) churn(ctx context.Context, middle func(context.Context) error) error {
	if err := p.changeUntil(ctx, p.Changes/2); err != nil {
		return err
	}
	p.Log("%d of %d changes are done", p.Changes/2, p.Changes)
	if err := middle(ctx); err != nil {
		return err
	}
	if err := p.changeUntil(ctx, p.Changes); err != nil || p.failures == nil {
		return err
	}
	return p.failures.end(ctx)
}

// changeUntil makes changes until the phase has had total.
func (p *phase) changeUntil(ctx context.Context, total int) error {
	ticker := time.NewTicker(roundInterval)
	defer ticker.Stop()
	for p.changes.total() < total {
		if err := p.round(ctx, total-p.changes.total()); err != nil {
			return err
		}
		if p.failures != nil {
			if err := p.failures.round(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// round changes each service once, all with one reload, if that many are left.
func (p *phase) round(ctx context.Context, left int) error {
	var arriving []func()
	for _, s := range p.testbed.services[:min(left, len(p.testbed.services))] {
		c := s.weights.randomChange(p.random)
		s.weights[c.server] = c.weight
		p.changes[c.kind]++
		switch name := s.names[c.server]; c.kind {
		case removed:
			s.presence.Leave(name)
		case added:
			arriving = append(arriving, func() { s.presence.Arrive(name) })
		default:
		}
	}
	if err := p.testbed.configure(ctx); err != nil {
		return err
	}
	for _, arrive := range arriving {
		arrive()
	}
	return nil
}
