// SPDX-License-Identifier: Apache-2.0

// Package cost measures processor time on this machine, without a network: the time of
// one packet in the balancer's program, and of health checks. cmd/fairlab calls Packet,
// Checks and ServeChecks.
package cost

import (
	"context"
	"fmt"
	"runtime"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// Packet measures the cost of one packet in the balancer's program.
//
// BPF_PROG_TEST_RUN runs a front that makes the next packet of a load and calls
// the program under test. The cost of the same front with an empty program is
// subtracted. All compared programs and numbers of flows take turns in a round.
func Packet(ctx context.Context, cfg bench.Config) (*bench.Report, error) {
	return bench.Run(ctx, cfg, newPlan(cfg.Quick).bench())
}

// bench has the nanoseconds per packet, including the front's, in its cells.
func (p plan) bench() bench.Bench[float64] {
	b := bench.Bench[float64]{Name: "packet", Report: p.report}
	for _, g := range p.groups {
		if g.two && runtime.NumCPU() == 1 {
			continue
		}
		w := &workbench{packets: p.packets, tested: map[subject]*tested{}}
		cells := bench.Group[float64]{Name: g.String(), Rounds: p.rounds}
		for _, c := range g.conditions() {
			cells.Cells = append(cells.Cells, w.cell(c))
		}
		b.Groups = append(b.Groups, cells)
	}
	return b
}

// findings are the nanoseconds per packet, including the front's.
type findings bench.Found[float64]

// report adds all results, ratios and verdicts.
func (p plan) report(r *bench.Report, found bench.Found[float64]) error {
	f := findings(found)
	for _, g := range p.groups {
		for _, c := range g.conditions() {
			if c.subject == bare {
				r.Add("front_cost", "ns/packet", f[c.String()], c.labels())
			} else {
				r.Add("packet_cost", "ns/packet", f.cost(c), c.labels())
			}
		}
	}
	usual := conditions{workload{oneService, lb.TCP, false}, balancer(lb.L2DSR, lb.TrackingMinimal), manyFlows, 1}
	oneFlow, fewFlows, tracked, services, backends := usual, usual, usual, usual, usual
	oneFlow.flows, fewFlows.flows = 1, 1<<16
	tracked.tracking = lb.TrackingFull
	services.shape, backends.shape = most, largest
	servicesFew := services
	servicesFew.flows = fewFlows.flows
	for _, s := range shared() {
		one := conditions{usual.workload, s, sharedFlows, 1}
		two := one
		two.processors = 2
		err := r.Compare(bench.Comparison{
			Name: fmt.Sprintf("two_processors_over_one_%s_%s", s.name, s.tracking), A: f[one.String()], B: f[two.String()], Target: bench.AtLeast(1.9),
			Claim: fmt.Sprintf("packets that two processors handle over those of one, %s, tracking %s, %d flows each, those of the front included", s.name, s.tracking, sharedFlows),
		})
		if err != nil {
			return err
		}
	}
	return r.Compare(
		bench.Comparison{
			Name: "flows_1m_over_1", A: f.cost(usual), B: f.cost(oneFlow), Target: bench.AtMost(1.5),
			Claim: "cost per packet at 1M flows over that at one flow (one VIP, 255 backends)",
		},
		bench.Comparison{
			Name: "stable_over_full_tracking_1m", A: f.cost(usual), B: f.cost(tracked), Target: bench.AtMost(0.25),
			Claim: "cost per packet in steady state over that with every flow tracked, 1M flows",
		},
		bench.Comparison{
			Name: "vips_4096_over_1", A: f.cost(services), B: f.cost(usual), Target: bench.AtMost(3),
			Claim: "cost per packet with 4,096 services of 16 backends over that with one of 255, 1M flows",
		},
		bench.Comparison{
			Name: "vips_4096_over_1_64k", A: f.cost(servicesFew), B: f.cost(fewFlows), Target: bench.AtMost(3),
			Claim: "cost per packet with 4,096 services of 16 backends over that with one of 255, 65,536 flows",
		},
		bench.Comparison{
			Name: "vips_32x4000_over_1", A: f.cost(backends), B: f.cost(usual), Target: bench.AtMost(3.5),
			Claim: "cost per packet with 32 services of 4,000 backends over that with one of 255, 1M flows",
		},
	)
}

// cost is the cost of a program alone: the front's is subtracted, round by round. It
// is nil if one of them wasn't measured.
func (f findings) cost(c conditions) bench.Runs {
	front := c
	front.subject = bare
	return bench.Runs(f[c.String()]).Minus(f[front.String()])
}
