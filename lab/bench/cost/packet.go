// SPDX-License-Identifier: Apache-2.0

// Package cost measures processor time on this machine, without a network: the time of
// one packet in the balancer's program, and of health checks. cmd/fairlab calls Packet,
// Checks and ServeChecks.
package cost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// PacketConfig configures Packet.
type PacketConfig struct {
	bench.Config
	// Shapes ("4096x16": services, and backends of each), Programs ("l2dsr") and numbers
	// of Flows restrict the measurements; empty: all.
	Shapes, Programs []string
	Flows            []int
}

// Packet measures the cost of one packet in the balancer's program.
//
// BPF_PROG_TEST_RUN runs a front that makes the next packet of a load and calls
// the program under test. The cost of the same front with an empty program is
// subtracted. All compared programs and numbers of flows take turns in a round.
//
// Packet leaves nothing, also if it fails or ctx ends.
func Packet(ctx context.Context, cfg PacketConfig) (*bench.Report, error) {
	report, err := cfg.NewReport("packet")
	if err != nil {
		return nil, err
	}
	p := newPlan(cfg.Quick)
	if err := p.restrict(cfg.Shapes, cfg.Programs, cfg.Flows); err != nil {
		return nil, err
	}
	found, err := measureAll(ctx, cfg.Config, p)
	if err != nil {
		return nil, err
	}
	return report, found.report(report)
}

// measureAll measures the groups of a plan one after the other.
func measureAll(ctx context.Context, cfg bench.Config, p plan) (findings, error) {
	found := findings{}
	for i, g := range p.groups {
		cfg.Log("%d of %d: %s, %d programs, %d numbers of flows", i+1, len(p.groups), g.workload, len(g.subjects), len(g.flows))
		if err := measure(ctx, g, p, found); err != nil {
			return nil, fmt.Errorf("%s: %w", g.workload, err)
		}
	}
	return found, nil
}

// measure compares the programs of a group: a warm-up of each, then rounds of all
// programs with all numbers of flows.
func measure(ctx context.Context, g group, p plan, found findings) (err error) {
	w := &workbench{planes: map[subject]*xdp.Unattached{}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx, g); err != nil {
		return err
	}
	for _, s := range w.series {
		passes := 2
		if s.tracking == lb.TrackingFull {
			passes = 8 // records are limited to a third of the table a second
		}
		if _, err := s.run(max(p.packets, passes*s.flows)); err != nil {
			return err
		}
	}
	err = bench.Alternate(ctx, p.rounds, w.series, func(s *series) error {
		perPacket, err := s.run(p.packets)
		found[s.conditions] = append(found[s.conditions], perPacket)
		return err
	})
	if err != nil {
		return err
	}
	return w.check(ctx)
}

// findings are the nanoseconds per packet, including the front's.
type findings map[conditions]bench.Runs

// report adds all results, ratios and verdicts.
func (f findings) report(r *bench.Report) error {
	for _, c := range slices.SortedFunc(maps.Keys(f), compareConditions) {
		if c.subject == bare {
			r.Add("front_cost", "ns/packet", f[c], c.labels())
		} else {
			r.Add("packet_cost", "ns/packet", f.cost(c), c.labels())
		}
	}
	usual := conditions{workload{oneService, lb.TCP, false}, balancer(lb.L2DSR, lb.TrackingMinimal), manyFlows, 0}
	oneFlow, fewFlows, tracked, services, backends := usual, usual, usual, usual, usual
	oneFlow.flows, fewFlows.flows = 1, 1<<16
	tracked.tracking = lb.TrackingFull
	services.shape, backends.shape = most, largest
	servicesFew := services
	servicesFew.flows = fewFlows.flows
	for _, s := range shared() {
		one := conditions{usual.workload, s, sharedFlows, 0}
		two := one
		two.more = 1
		err := r.Compare(bench.Comparison{
			Name: fmt.Sprintf("two_processors_over_one_%s_%s", s.name, s.tracking), A: f[one], B: f[two], Source: bench.Documented, Target: bench.AtLeast(1.9),
			Claim: fmt.Sprintf("packets that two processors handle over those of one, %s, tracking %s, %d flows each, those of the front included", s.name, s.tracking, sharedFlows),
		})
		if err != nil {
			return err
		}
	}
	return r.Compare(
		bench.Comparison{
			Name: "flows_1m_over_1", A: f.cost(usual), B: f.cost(oneFlow), Source: bench.Documented, Target: bench.AtMost(1.5),
			Claim: "cost per packet at 1M flows over that at one flow (one VIP, 255 backends)",
		},
		bench.Comparison{
			Name: "stable_over_full_tracking_1m", A: f.cost(usual), B: f.cost(tracked), Source: bench.Documented, Target: bench.AtMost(0.25),
			Claim: "cost per packet in steady state over that with every flow tracked, 1M flows",
		},
		bench.Comparison{
			Name: "vips_4096_over_1", A: f.cost(services), B: f.cost(usual), Source: bench.Documented, Target: bench.AtMost(3),
			Claim: "cost per packet with 4,096 services of 16 backends over that with one of 255, 1M flows",
		},
		bench.Comparison{
			Name: "vips_4096_over_1_64k", A: f.cost(servicesFew), B: f.cost(fewFlows), Source: bench.Documented, Target: bench.AtMost(3),
			Claim: "cost per packet with 4,096 services of 16 backends over that with one of 255, 65,536 flows",
		},
		bench.Comparison{
			Name: "vips_32x4000_over_1", A: f.cost(backends), B: f.cost(usual), Source: bench.Documented, Target: bench.AtMost(3.5),
			Claim: "cost per packet with 32 services of 4,000 backends over that with one of 255, 1M flows",
		},
	)
}

// cost is the cost of a program alone: the front's is subtracted, round by round. It
// is nil if one of them wasn't measured.
func (f findings) cost(c conditions) bench.Runs {
	front := c
	front.subject = bare
	return f[c].Minus(f[front])
}

// compareConditions orders by the services, the traffic, the program and the
// number of flows.
func compareConditions(a, b conditions) int {
	return cmp.Or(
		cmp.Compare(a.vips, b.vips),
		cmp.Compare(a.family(), b.family()),
		cmp.Compare(a.protocol, b.protocol),
		cmp.Compare(a.mode, b.mode),
		cmp.Compare(a.name, b.name),
		cmp.Compare(a.tracking, b.tracking),
		cmp.Compare(a.flows, b.flows),
		cmp.Compare(a.more, b.more),
	)
}
