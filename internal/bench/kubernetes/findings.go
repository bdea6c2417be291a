// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/bench"
)

// findings are what was measured.
type findings struct {
	services int
	// controllerSync and agentSync are seconds.
	controllerSync, agentSync float64
	// decided and written are milliseconds since before a change is written: until the
	// program decides by it, and until the API server has answered. followed is from
	// the one to the other; 0 where the program was first.
	decided, written, followed bench.Runs
	// atRest are those of the processes by their names.
	atRest map[string]*use
}

// use is what a process costs.
type use struct {
	cores, memory, heap bench.Runs // processors, and MiB
}

// rest measures what the processes cost when nothing changes.
func (f *findings) rest(ctx context.Context, s *site, p plan) error {
	pages := map[string]string{agentProcess: agentPage, controllerProcess: controllerPage}
	if err := bench.Sleep(ctx, p.calm); err != nil {
		return err
	}
	f.atRest = map[string]*use{agentProcess: {}, controllerProcess: {}}
	for range p.rounds {
		began, before := time.Now(), map[string]time.Duration{}
		for process := range pages {
			busy, err := s.busy(process)
			if err != nil {
				return err
			}
			before[process] = busy
		}
		if err := bench.Sleep(ctx, p.round); err != nil {
			return err
		}
		passed := time.Since(began)
		for process := range pages {
			busy, err := s.busy(process)
			if err != nil {
				return err
			}
			f.atRest[process].cores = append(f.atRest[process].cores, (busy-before[process]).Seconds()/passed.Seconds())
		}
	}
	for process, page := range pages {
		if err := f.atRest[process].weigh(ctx, s, process, page); err != nil {
			return err
		}
	}
	return nil
}

// weigh takes the memory that a process has at last.
func (u *use) weigh(ctx context.Context, s *site, process, page string) error {
	memory, err := s.resident(process)
	if err != nil {
		return err
	}
	heap, err := s.heap(ctx, process, page)
	if err != nil {
		return err
	}
	u.memory, u.heap = bench.Runs{memory / mib}, bench.Runs{heap / mib}
	return nil
}

// target is from the change of an EndpointSlice to the program's decision, in
// milliseconds, for 99 changes of 100.
const target = 50

// report adds what was found, and judges it.
func (f *findings) report(r *bench.Report) {
	labels := map[string]string{"services": fmt.Sprint(f.services), "endpoints": fmt.Sprint(f.services * endpoints)}
	r.AddDistribution("endpointslice_to_program_ms", "ms", f.decided, labels)
	r.AddDistribution("endpointslice_write_ms", "ms", f.written, labels)
	r.AddDistribution("answer_to_program_ms", "ms", f.followed, labels)
	r.Add("controller_sync", "s", bench.Runs{f.controllerSync}, labels)
	r.Add("agent_sync", "s", bench.Runs{f.agentSync}, labels)
	for _, process := range []string{agentProcess, controllerProcess} {
		u := f.atRest[process]
		r.Add(process+"_memory", "MiB", u.memory, labels)
		r.Add(process+"_heap", "MiB", u.heap, labels)
		r.Add(process+"_rest_cores", "cores", u.cores, labels)
	}
	slow := f.decided.Percentile(99)
	r.Add("endpointslice_to_program_p99_ms", "ms", bench.Runs{slow}, labels)
	r.Judge("endpointslice_to_program_p99_ms: 99 of 100 changes are decided by within so many milliseconds",
		"docs/benchmarks.md", bench.AtMost(target), slow)
}
