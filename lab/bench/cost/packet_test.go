// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// smallPlan runs every program a few thousand times.
func smallPlan() plan {
	subjects := []subject{bare, reflector, balancer(lb.L2DSR, lb.TrackingFull)}
	for _, mode := range xdp.Limits().Forwards {
		subjects = append(subjects, balancer(mode, lb.TrackingMinimal))
	}
	return plan{rounds: 2, packets: 1 << 12, groups: []group{
		{workload: workload{shape{1, 4}, lb.TCP, false}, subjects: subjects, flows: []int{1, 1 << 10}},
		{workload: workload{shape{4, 3}, lb.UDP, true}, subjects: subjects, flows: []int{1 << 10}, two: true},
	}}
}

func TestSmallRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	p := smallPlan()
	b := p.bench()
	b.Report = func(_ *bench.Report, found bench.Found[float64]) error {
		for _, g := range b.Groups {
			for _, c := range g.Cells {
				runs := bench.Runs(found[c.Name])
				if low, _ := runs.Bounds(); len(runs) != p.rounds || low <= 0 {
					t.Errorf("%s: %v", c.Name, runs)
				}
			}
		}
		return nil
	}
	if _, err := bench.Run(t.Context(), bench.Config{}, b); err != nil {
		t.Fatal(err)
	}
}

// A program that doesn't forward would be measured as a fast one.
func TestRefusedPacketsAreAnError(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	w := &workbench{packets: 1 << 12, tested: map[subject]*tested{}}
	c := conditions{workload{shape{1, 4}, lb.TCP, false}, balancer(lb.L2DSR, lb.TrackingMinimal), 1, 1}
	cell := w.cell(c)
	if err := cell.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.tested[c.subject].plane.Delete(t.Context(), c.vip(0)); err != nil {
		t.Error(err)
	}
	if _, err := cell.Measure(t.Context()); err != nil {
		t.Error(err)
	}
	if err := cell.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "packets left by") {
		t.Errorf("packets that were passed to the kernel went unnoticed: %v", err)
	}
}

// TestInterruptedSetUpEnds checks that each part of a set-up ends when it is interrupted.
func TestInterruptedSetUpEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	w := &workbench{packets: 1 << 12, tested: map[subject]*tested{}}
	c := conditions{workload{shape{1, 4}, lb.TCP, false}, balancer(lb.L2DSR, lb.TrackingFull), 1, 1}
	cell := w.cell(c)
	if err := cell.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	many := c
	many.flows = 1 << 28
	_, loaded := load(ended, c)
	for part, err := range map[string]error{
		"services": loaded, "first packets": establish(ended, w.tested[c.subject], many.load(many.flows, 0, true)), "warm-up": w.warmUp(ended, many, nil),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want that of the context", part, err)
		}
	}
	if err := cell.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPlans(t *testing.T) {
	for _, quick := range []bool{true, false} {
		p, found := newPlan(quick), bench.Found[float64]{}
		for _, g := range p.groups {
			for _, c := range g.conditions() {
				if found[c.String()] != nil {
					t.Errorf("quick=%v: two cells are called %s", quick, c)
				}
				found[c.String()] = bench.Runs{100 + float64(len(found))}
			}
		}
		r := &bench.Report{Ratios: map[string]float64{}}
		if err := p.report(r, found); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"flows_1m_over_1", "stable_over_full_tracking_1m", "vips_4096_over_1", "vips_32x4000_over_1", "two_processors_over_one_nat_minimal"} {
			if _, ok := r.Ratios[name]; !ok {
				t.Errorf("quick=%v: no ratio %s", quick, name)
			}
		}
		if len(r.Verdicts) != len(r.Ratios) {
			t.Errorf("quick=%v: %d verdicts on %d ratios", quick, len(r.Verdicts), len(r.Ratios))
		}
	}
}

// The front's own time is taken off within each round.
func TestCostSubtractsTheFront(t *testing.T) {
	of := conditions{workload{oneService, lb.TCP, false}, reflector, 1, 1}
	front := of
	front.subject = bare
	f := findings{of.String(): {50, 70}, front.String(): {40, 45}}
	if got := f.cost(of); len(got) != 2 || got[0] != 10 || got[1] != 25 {
		t.Errorf("costs %v, want 10 and 25", got)
	}
	delete(f, front.String())
	if got := f.cost(of); got != nil {
		t.Errorf("costs %v without a front's, want none", got)
	}
}
