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
	"fairlead.io/fairlead/lab/netlab"
)

// phase is one measurement, in a lab of its own.
type phase struct {
	*Config
	testbed *testbed
	random  *rand.Rand
	changes changeCounts
	// suffix of the names of the results.
	suffix string
	// refused are the answers that nodes with kube-proxy had no flow for.
	refused int
	// before precedes the load; nil: nothing.
	before func(*testbed, context.Context) error
	// event is all that happens, to ring entries that have never changed; nil: backends change,
	// and if loses is set one balancer is lost in the middle.
	event func(*testbed, context.Context) error
	loses bool
	// failures happen among the changes; nil: none.
	failures *failures
	// claim is about the connections that Fairlead breaks, with the number of changes if there
	// are some, and moves about the UDP flows that it moves; empty: none.
	claim, moves string
}

// phases are all phases with one kind of balancer. kube-proxy checks no servers.
func (c *Config) phases(kubeProxy bool) ([]*phase, error) {
	all := []*phase{
		{suffix: "_balancer_loss", event: (*testbed).loseBalancer,
			claim: "connections broken by the loss of one balancer of three while no backend changes", moves: "UDP flows moved by it"},
		{suffix: "_balancer_join", before: (*testbed).loseBalancer, event: (*testbed).joinBalancer,
			claim: "connections broken by its return", moves: "UDP flows moved by its return"},
		{suffix: "", claim: "connections broken by %d random backend changes under load"},
		{suffix: "_balancer_loss_changes", loses: true},
		{suffix: "_health", before: (*testbed).checkServers, failures: &failures{},
			claim: "connections to living servers broken by %d such changes while others are killed and started again"},
	}
	if kubeProxy {
		all = all[:4]
	}
	for n, p := range all {
		t, err := newTestbed(c.Tracking, kubeProxy)
		if err != nil {
			return nil, err
		}
		p.Config, p.testbed, p.random, p.changes = c, t, rand.New(rand.NewPCG(c.Seed, uint64(n))), changeCounts{}
		if p.failures != nil {
			p.failures.testbed, p.failures.random = t, p.random
		}
		if kubeProxy {
			p.suffix = "_kube_proxy" + p.suffix
		}
	}
	return all, nil
}

// cell measures the phase.
func (p *phase) cell() bench.Cell[bench.Report] {
	t := p.testbed
	return bench.Cell[bench.Report]{
		Name: "churn" + p.suffix, Programs: append(t.topology.Programs(), "vtysh"),
		Stage: bench.Stage{
			Setup: func(ctx context.Context) (err error) {
				if t.Lab, err = p.Labs.Up(ctx, p.Name, t.topology); err != nil {
					return err
				}
				if err = t.awaitRoutes(ctx); err != nil || p.before == nil {
					return err
				}
				return p.before(t, ctx)
			},
			Remove: func(ctx context.Context) error {
				if t.Lab == nil {
					return nil
				}
				return t.Down(ctx)
			},
		},
		Measure: func(ctx context.Context) (part bench.Report, err error) {
			seen, err := p.measure(ctx)
			if err == nil {
				p.report(&part, seen)
			}
			return part, err
		},
	}
}

// report adds the results, and verdicts on Fairlead.
func (p *phase) report(r *bench.Report, seen bench.Counts) {
	seen.Report(r, p.suffix)
	labels := map[string]string{"seed": fmt.Sprint(p.Seed), "tracking": p.Tracking.String()}
	p.changes.report(r, p.suffix, labels)
	if p.failures != nil {
		r.Add("deaths"+p.suffix, "servers", bench.Runs{float64(p.testbed.deaths.Count())}, nil)
	}
	if p.testbed.kubeProxy {
		r.Add("answers_refused"+p.suffix, "datagrams", bench.Runs{float64(p.refused)}, nil)
	}
	if p.testbed.kubeProxy || p.claim == "" {
		return
	}
	if p.event == nil {
		r.Judge(fmt.Sprintf(p.claim, p.changes.total()), bench.Documented, bench.AtMost(0), float64(seen.TCPBroken()))
		return
	}
	r.Judge(p.claim, bench.Documented, bench.AtMost(0), float64(seen.TCPBroken()))
	r.Judge(p.moves, bench.Documented, bench.AtMost(0), float64(seen.Moved))
}

const (
	// roundInterval is the least time between two rounds, in each of which every
	// service is changed once. It is longer than UDP flows are learned: they only stay
	// if they are learned before a change. It is shorter than TCP clients are silent,
	// so that connections are idle during several changes.
	roundInterval = 450 * time.Millisecond
	// tcpTimeout is longer than TCP needs to repair losses.
	tcpTimeout = 10 * time.Second
	// around is the time under load before and after an event.
	around = 3 * time.Second
)

// measure runs the phase.
func (p *phase) measure(ctx context.Context) (bench.Counts, error) {
	l := &bench.Load{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.testbed.Dial(ctx, "client", network, address)
		},
		Targets: p.testbed.targets(), Deaths: &p.testbed.deaths, Timeout: tcpTimeout, Progress: p.Log,
	}
	before, err := p.testbed.refused()
	if err != nil {
		return bench.Counts{}, err
	}
	started := time.Now()
	l.Start(ctx, p.Connections, p.flows(), p.short())
	p.Log("%d connections are open after %.1f s", p.Connections, time.Since(started).Seconds())
	during := p.churn
	if p.event != nil {
		during = p.happen
	}
	err = during(l.Over())
	seen, failed := l.Stop()
	// The first error causes the others.
	if err := cmp.Or(ctx.Err(), failed, err); err != nil {
		return seen, err
	}
	p.Log("%d lines were answered, %d connections broke", seen.Lines, seen.TCPBroken())
	after, err := p.testbed.refused()
	if err != nil {
		return seen, err
	}
	p.refused = after - before
	return seen, p.testbed.check(ctx)
}

// happen has the event happen between times in which every client sends at least once.
func (p *phase) happen(ctx context.Context) error {
	if err := netlab.Sleep(ctx, around); err != nil {
		return err
	}
	if err := p.event(p.testbed, ctx); err != nil {
		return err
	}
	return netlab.Sleep(ctx, around)
}

// churn makes all changes.
func (p *phase) churn(ctx context.Context) error {
	if err := p.changeUntil(ctx, p.Changes/2); err != nil {
		return err
	}
	p.Log("%d of %d changes are done", p.Changes/2, p.Changes)
	if p.loses {
		if err := p.testbed.loseBalancer(ctx); err != nil {
			return err
		}
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
