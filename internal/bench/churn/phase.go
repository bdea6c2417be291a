// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"time"

	"fairlead.io/fairlead/internal/bench/client"
)

const (
	// roundPace is the least time between two rounds, in each of which every
	// service is changed once. It is longer than UDP flows are learned: they stay
	// only if there is that time before a change. It is shorter than TCP clients
	// are silent, so that connections sleep through several changes.
	roundPace = 450 * time.Millisecond
	// patience is how long TCP may take to repair losses before a connection
	// counts as broken.
	patience = 10 * time.Second
)

// phase is one measurement in a lab that is up.
type phase struct {
	Config
	site    *site
	random  *rand.Rand
	changes changeCounts
	// failures happen among the changes; nil: none.
	failures *failures
}

// measure runs the phase; servers are probed only where some fail.
func (p *phase) measure(ctx context.Context, during func(context.Context) error) (client.Counts, error) {
	if p.failures == nil {
		return p.run(ctx, during)
	}
	if err := p.site.probe(ctx, healthCheck()); err != nil {
		return client.Counts{}, err
	}
	seen, err := p.run(ctx, during)
	if err != nil {
		return seen, err
	}
	return seen, p.site.probe(ctx, nil)
}

// run has something happen under load.
func (p *phase) run(ctx context.Context, during func(context.Context) error) (client.Counts, error) {
	l := &client.Load{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.site.Dial(ctx, "client", network, address)
		},
		Targets: p.site.targets(), Deaths: &p.site.deaths, Patience: patience, Progress: p.progress,
	}
	started := time.Now()
	l.Start(ctx, p.Connections, p.flows(), p.visitors())
	p.progress("%d connections are open after %.1f s", p.Connections, time.Since(started).Seconds())
	err := during(l.Over())
	seen, failed := l.Stop()
	// The first is the cause of those that follow.
	if err := cmp.Or(ctx.Err(), failed, err); err != nil {
		return seen, err
	}
	p.progress("%d lines were answered, %d connections broke", seen.Lines, seen.TCPBroken())
	return seen, p.site.check(ctx)
}

// churn makes all changes, one half before and one after what happens in the
// middle.
func (p *phase) churn(ctx context.Context, middle func(context.Context) error) error {
	if err := p.changeUntil(ctx, p.Changes/2); err != nil {
		return err
	}
	p.progress("%d of %d changes are done", p.Changes/2, p.Changes)
	if err := middle(ctx); err != nil {
		return err
	}
	if err := p.changeUntil(ctx, p.Changes); err != nil || p.failures == nil {
		return err
	}
	return p.failures.end(ctx)
}

// changeUntil makes changes until there have been so many in the phase.
func (p *phase) changeUntil(ctx context.Context, total int) error {
	ticker := time.NewTicker(roundPace)
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

// round changes each service once, all with one reload, as far as there are
// changes left to do.
func (p *phase) round(ctx context.Context, left int) error {
	var arriving []func()
	for _, s := range p.site.services[:min(left, len(p.site.services))] {
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
	if err := p.site.configure(ctx); err != nil {
		return err
	}
	for _, arrive := range arriving {
		arrive()
	}
	return nil
}
