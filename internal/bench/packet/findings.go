// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"cmp"
	"maps"
	"slices"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/lb"
)

// findings are the nanoseconds that a packet took, the front's included.
type findings map[conditions]bench.Runs

const source = "DESIGN.md §10"

// report adds everything that was found; ratios and verdicts are those of
// which both sides were measured.
func (f findings) report(r *bench.Report) error {
	for _, c := range slices.SortedFunc(maps.Keys(f), compareConditions) {
		if c.subject == bare {
			r.Add("front_cost", "ns/packet", f[c], c.labels())
		} else {
			r.Add("packet_cost", "ns/packet", f.cost(c), c.labels())
		}
	}
	usual := conditions{traffic{oneService, lb.TCP, false}, balancer(lb.L2DSR, lb.TrackingMinimal), manyFlows}
	oneFlow, tracked := usual, usual
	oneFlow.flows = 1
	tracked.tracking = lb.TrackingFull
	for _, q := range []struct {
		name     string
		of, over conditions
		claim    string
		most     float64
	}{
		{"flows_1m_over_1", usual, oneFlow, "cost per packet at 1M flows over that at one flow (one VIP, 255 backends)", 1.5},
		{"stable_over_full_tracking_1m", usual, tracked, "cost per packet in steady state over that with every flow tracked, 1M flows", 0.25},
	} {
		a, b := f.cost(q.of), f.cost(q.over)
		if a == nil || b == nil {
			continue
		}
		ratio, err := r.AddRatio(q.name, a, b)
		if err != nil {
			return err
		}
		r.Judge(q.claim, source, bench.AtMost(q.most), ratio)
	}
	return nil
}

// cost is that of a program alone: the front's is subtracted, round by round.
// It is nil if one of them wasn't measured.
func (f findings) cost(c conditions) bench.Runs {
	front := c
	front.subject = bare
	whole, own := f[c], f[front]
	if len(whole) == 0 || len(whole) != len(own) {
		return nil
	}
	costs := make(bench.Runs, len(whole))
	for i := range whole {
		costs[i] = whole[i] - own[i]
	}
	return costs
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
	)
}
