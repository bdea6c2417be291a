// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"os"
	"runtime"
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
		{workload: workload{shape{4, 3}, lb.UDP, true}, subjects: subjects, flows: []int{1 << 10}, two: runtime.NumCPU() > 1},
	}}
}

func TestSmallRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	p := smallPlan()
	found, err := measureAll(t.Context(), bench.Config{}, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range p.groups {
		for _, s := range g.subjects {
			for _, flows := range g.flows {
				for more := range g.processors() {
					runs := found[conditions{g.workload, s, flows, more}]
					if low, _ := runs.Bounds(); len(runs) != p.rounds || low <= 0 {
						t.Errorf("%s, %s, %d flows, %d processors more: %v", g.workload, s.name, flows, more, runs)
					}
				}
			}
		}
	}
}

// A program that doesn't forward would be measured as a fast one.
func TestRefusedPacketsAreAnError(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	w := &workbench{planes: map[subject]*xdp.Unattached{}}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	g := group{workload: workload{shape{1, 4}, lb.TCP, false}, subjects: []subject{balancer(lb.L2DSR, lb.TrackingMinimal)}, flows: []int{1}}
	if err := w.open(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if err := w.planes[g.subjects[0]].Delete(t.Context(), g.vip(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.series[0].run(1 << 12); err != nil {
		t.Fatal(err)
	}
	if err := w.check(t.Context()); err == nil {
		t.Error("packets that were passed to the kernel went unnoticed")
	}
}

func TestInterruptedRunEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := measureAll(ctx, bench.Config{Progress: func(string) { cancel() }}, smallPlan()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

func TestPlans(t *testing.T) {
	for _, quick := range []bool{true, false} {
		p := newPlan(quick)
		found := findings{}
		for _, g := range p.groups {
			for _, s := range g.subjects {
				for _, flows := range g.flows {
					for more := range g.processors() {
						found[conditions{g.workload, s, flows, more}] = bench.Runs{100 + float64(len(found))}
					}
				}
			}
		}
		r := &bench.Report{Ratios: map[string]float64{}}
		if err := found.report(r); err != nil {
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
	of := conditions{workload{oneService, lb.TCP, false}, reflector, 1, 0}
	front := of
	front.subject = bare
	f := findings{of: {50, 70}, front: {40, 45}}
	if got := f.cost(of); len(got) != 2 || got[0] != 10 || got[1] != 25 {
		t.Errorf("costs %v, want 10 and 25", got)
	}
	delete(f, front)
	if got := f.cost(of); got != nil {
		t.Errorf("costs %v without a front's, want none", got)
	}
}
