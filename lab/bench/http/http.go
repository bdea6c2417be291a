// SPDX-License-Identifier: Apache-2.0

// Package http compares the ways in which small HTTP requests get to servers: through Fairlead,
// the rules of iptables, nftables and kube-proxy, and proxies. wrk sends them to nginx, in labs.
// cmd/fairlab calls Run.
//
// There are two kinds of cells, whose figures are never mixed. The cost is the processor time of
// a request by hosts, on links without a limit. The throughput over shaped links is about the
// bytes of requests and answers, and no speed of forwarding.
package http

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fairlead.io/fairlead/lab/bench"
)

// Config configures Run.
type Config struct {
	bench.Config
	// Name begins the names of the labs, which must not exist yet.
	Name string
}

// Run builds a lab for each cell of a group, measures, and removes them.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	p := planned{Config: cfg}
	if err := p.plan(); err != nil {
		return nil, err
	}
	return bench.Run(ctx, cfg.Config, bench.Bench[finding]{Name: "http", Groups: p.groups, Report: report})
}

// planned are the cells of a run.
type planned struct {
	Config
	groups []bench.Group[finding]
	labs   int
}

func (p *planned) plan() error {
	for _, ways := range costGroups() {
		if err := p.cost(ways); err != nil {
			return err
		}
	}
	for _, number := range serverNumbers(p.Quick) {
		if err := p.throughput(number); err != nil {
			return err
		}
	}
	return nil
}

// group adds the cells of ways that are compared, each with a testbed like one.
func (p *planned) group(name string, rounds int, ways []way, one testbed, cell func(way string) string) error {
	g := bench.Group[finding]{Name: name, Rounds: rounds}
	one.length = 3 * time.Second
	if p.Quick {
		g.Rounds, one.length = 1, time.Second
		ways = slices.DeleteFunc(ways, func(w way) bool { return !w.quick })
	}
	for _, w := range ways {
		t := one
		t.way = w
		p.labs++
		c, err := t.cell(p.Labs, fmt.Sprintf("%s-%d", p.Name, p.labs), cell(w.name))
		if err != nil {
			return err
		}
		c.Reference = !t.shaped && (w.name == l2dsr || w.name == iptables)
		g.Cells = append(g.Cells, c)
	}
	if len(g.Cells) > 0 {
		p.groups = append(p.groups, g)
	}
	return nil
}

// report adds the results of all cells.
func report(r *bench.Report, found bench.Found[finding]) error {
	failed := 0
	for _, rounds := range found {
		for _, f := range rounds {
			failed += f.Failed
		}
	}
	r.Add("requests_failed", "requests", bench.Runs{float64(failed)}, nil)
	r.Judge("requests that failed", bench.Documented, bench.AtMost(0), float64(failed))
	if err := reportCost(r, found); err != nil {
		return err
	}
	return reportThroughput(r, found)
}

// runs are the values of a cell's rounds.
func runs(rounds []finding, value func(finding) float64) (all bench.Runs) {
	for _, f := range rounds {
		all = append(all, value(f))
	}
	return all
}
