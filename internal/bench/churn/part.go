// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"context"
	"fmt"
	"math/rand/v2"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/bench/client"
)

// part is a phase with what is told of it.
type part struct {
	phase
	// suffix of the names of the results.
	suffix string
	// during is what happens under load, after what follows that; nil: nothing.
	during, after func(context.Context) error
	// claim is about connections that broke, with the number of changes; empty: none
	// is made. steady claims that no UDP flow moves either.
	claim  string
	steady bool
}

// parts are all phases. The first one is of connections whose ring entries have
// never changed, which is why it is the first.
func (c *Config) parts(site *site) []part {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	nothing := func(context.Context) error { return nil }
	all := []part{
		{suffix: "_balancer_loss", after: site.recoverBalancer, steady: true,
			claim: "connections broken by the loss of one balancer of three while no backend changes"},
		{suffix: "", claim: "connections broken by %d random backend changes under load"},
		{suffix: "_health", claim: "connections to living servers broken by %d such changes while others are killed and started again"},
		{suffix: "_balancer_loss_changes"},
	}
	for i := range all {
		p := &all[i]
		p.phase = phase{*c, site, random, changeCounts{}, nil}
		p.during = func(ctx context.Context) error { return p.churn(ctx, nothing) }
	}
	all[0].during = all[0].loseQuietly
	all[2].failures = &failures{site: site, random: random}
	all[3].during = func(ctx context.Context) error { return all[3].churn(ctx, site.loseBalancer) }
	return all
}

// report adds what the clients saw in the phase, and judges it.
func (p *part) report(r *bench.Report, seen client.Counts) {
	seen.Report(r, p.suffix)
	labels := map[string]string{"seed": fmt.Sprint(p.Seed), "tracking": p.Tracking.String()}
	p.changes.report(r, p.suffix, labels)
	const source = "DESIGN.md §10"
	switch {
	case p.steady:
		r.Judge(p.claim, source, bench.AtMost(0), float64(seen.TCPBroken()))
		r.Judge("UDP flows moved by it", source, bench.AtMost(0), float64(seen.Moved))
	case p.claim != "":
		r.Judge(fmt.Sprintf(p.claim, p.changes.total()), source, bench.AtMost(0), float64(seen.TCPBroken()))
	}
	if p.failures != nil {
		r.Add("deaths"+p.suffix, "servers", bench.Runs{float64(p.site.deaths.Count())}, nil)
	}
}
