// SPDX-License-Identifier: Apache-2.0

// Package kubernetes measures how Fairlead follows a Kubernetes cluster: the time from
// a change of an EndpointSlice, or of a member by the HTTP API (api.go), to the program's
// decision, the time that the controller and an agent take to synchronise thousands of
// Services, and their cost at rest.
//
// It writes objects into a real API server, runs the processes of controller and agent
// (testbed.go), and traces packets through the program (change.go). The pods of the
// objects don't run. Between the two halves of the changes it adds a namespace that asks for far
// more than it may have (excess.go), and measures as many changes of the others. At last it starts
// more agents (agents.go).
// cmd/fairlab calls Run.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// Config configures Run.
type Config struct {
	bench.Config
	// Name of the lab, and of the objects in the cluster.
	Name string
	// Kubeconfig has an administrator's access to the API server.
	Kubeconfig *clientcmdapi.Config
	// Services is the number of Services, with sixteen endpoints each, and Changes the
	// number of changes of EndpointSlices.
	Services, Changes int
	// Agents is the number of agents; all but the first start at the end.
	Agents int
}

// endpoints is the number of endpoints of each Service.
const endpoints = 16

// maxServices bounds the numbers of podAddress, maxAgents the numbers of balancerAddress
// and the nodes of a group.
const (
	maxServices = 1 << 14
	maxAgents   = 64
)

// removeTimeout bounds the removal of lab and objects.
const removeTimeout = 5 * time.Minute

// plan has the durations of the measurement at rest, and of the later ones.
type plan struct {
	// settle is the time for the effects of the last change.
	settle time.Duration
	rounds int
	round  time.Duration
	// excess is the part of the other namespace that is written: one in so many objects.
	excess int
}

func newPlan(quick bool) plan {
	if quick {
		return plan{settle: 3 * time.Second, rounds: 3, round: 2 * time.Second, excess: 10}
	}
	return plan{settle: 10 * time.Second, rounds: 6, round: 10 * time.Second, excess: 1}
}

// Run measures; it leaves nothing, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	return run(ctx, "kubernetes", cfg, func(o *objects, t *testbed, report *bench.Report) error {
		return measure(ctx, cfg, o, t, report)
	})
}

// run has a bench measured in a cluster and a lab of its own, and removes all that was made.
func run(ctx context.Context, name string, cfg Config, measure func(*objects, *testbed, *bench.Report) error) (report *bench.Report, err error) {
	if cfg.Services < 1 || cfg.Services > maxServices {
		return nil, fmt.Errorf("%d services: want 1 to %d", cfg.Services, maxServices)
	}
	if cfg.Agents < 1 || cfg.Agents > maxAgents {
		return nil, fmt.Errorf("%d agents: want 1 to %d", cfg.Agents, maxAgents)
	}
	if report, err = bench.NewReport(name, cfg.Commit, cfg.Quick); err != nil {
		return nil, err
	}
	api, err := clientcmd.NewDefaultClientConfig(*cfg.Kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	o, err := newObjects(api, cfg.Name, cfg.Services, cfg.Agents)
	if err != nil {
		return nil, err
	}
	if err := o.check(ctx); err != nil {
		return nil, err
	}
	t, err := newTestbed(ctx, cfg, api)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, t.close(ctx), o.remove(ctx))
	}()
	return report, measure(o, t, report)
}

// measure fills the cluster, starts the controller and then an agent, changes
// endpoints, and measures the processes at rest.
func measure(ctx context.Context, cfg Config, o *objects, t *testbed, report *bench.Report) error {
	f := findings{services: cfg.Services, alone: changes{pause: tracePause}, besides: changes{pause: tracePause}}
	cfg.Log("writing %d Services with %d endpoints each", cfg.Services, endpoints)
	if err := o.fill(ctx); err != nil {
		return err
	}
	cfg.Log("the controller assigns addresses")
	addresses, err := f.synchronise(ctx, o, t)
	if err != nil {
		return err
	}
	cfg.Log("half of %d changes of EndpointSlices", cfg.Changes)
	if err := f.alone.change(ctx, t, addresses, (cfg.Changes+1)/2, o.setReady); err != nil {
		return err
	}
	p := newPlan(cfg.Quick)
	cfg.Log("at rest, %d rounds of %s", p.rounds, p.round)
	if err := f.rest(ctx, o, t, p); err != nil {
		return err
	}
	cfg.Log("writing a namespace that asks for too much")
	if err := errors.Join(o.exceed(ctx, p.excess), netlab.Sleep(ctx, p.settle)); err != nil {
		return err
	}
	cfg.Log("%d changes of EndpointSlices of the other namespace", cfg.Changes)
	if err := f.besides.change(ctx, t, addresses, cfg.Changes, o.setReady); err != nil {
		return err
	}
	cfg.Log("the changes again without it")
	if err := errors.Join(o.empty(ctx, o.excessive()), netlab.Sleep(ctx, p.settle)); err != nil {
		return err
	}
	if err := f.alone.change(ctx, t, addresses, cfg.Changes, o.setReady); err != nil {
		return err
	}
	if cfg.Agents > 1 {
		cfg.Log("starting %d further agents", cfg.Agents-1)
		if err := f.many.measure(ctx, cfg, o, t, p); err != nil {
			return err
		}
	}
	return f.report(report)
}

// synchronise starts the controller and then the agent, measures the time of their
// initial synchronisation, and returns the addresses of the Services.
func (f *findings) synchronise(ctx context.Context, o *objects, t *testbed) ([]netip.Addr, error) {
	began := time.Now()
	if err := t.startController(ctx, o.name); err != nil {
		return nil, err
	}
	addresses, err := o.awaitAddresses(ctx, hasGroup, func() error { return t.running(controllerProcess) })
	if err != nil {
		return nil, err
	}
	f.controllerSync = time.Since(began).Seconds()
	began = time.Now()
	if err := t.startAgent(ctx, t.balancer); err != nil {
		return nil, err
	}
	if err := t.awaitProgrammed(ctx, t.balancer, len(addresses)); err != nil {
		return nil, err
	}
	f.agentSync = time.Since(began).Seconds()
	if _, err := o.awaitAddresses(ctx, isProgrammed, func() error { return t.running(agentProcess) }); err != nil {
		return nil, err
	}
	f.statusSync = time.Since(began).Seconds()
	return addresses, nil
}

type findings struct {
	services int
	// controllerSync, agentSync and statusSync are seconds.
	controllerSync, agentSync, statusSync float64
	// alone are the changes without the namespace that asks for too much, besides those with it.
	alone, besides changes
	// atRest is by process name.
	atRest map[string]*usage
	// writes are those that the API server gets per second while nothing changes.
	writes bench.Runs
	// many is with all agents.
	many many
}

// changes are the milliseconds of changes.
type changes struct {
	// decided and written are those from before the write of a change to the program's
	// decision, and to the API server's answer. followed is the difference; 0 where the
	// program was first.
	decided, written, followed bench.Runs
	// pause is the time between two traces.
	pause time.Duration
}

// usage is the cost of a process.
type usage struct {
	cores, memory, heap bench.Runs // processors, and MiB
}

// rest measures the cost and the writes of the processes while nothing changes.
func (f *findings) rest(ctx context.Context, o *objects, t *testbed, p plan) error {
	pages := map[string]string{agentProcess: agentPage, controllerProcess: controllerPage}
	if err := netlab.Sleep(ctx, p.settle); err != nil {
		return err
	}
	f.atRest = map[string]*usage{agentProcess: {}, controllerProcess: {}}
	began := time.Now()
	written, err := o.writes(ctx)
	if err != nil {
		return err
	}
	for range p.rounds {
		began, before := time.Now(), map[string]time.Duration{}
		for process := range pages {
			busy, err := t.process(process).Busy()
			if err != nil {
				return fmt.Errorf("%s: %w", process, err)
			}
			before[process] = busy
		}
		if err := netlab.Sleep(ctx, p.round); err != nil {
			return err
		}
		passed := time.Since(began)
		for process := range pages {
			busy, err := t.process(process).Busy()
			if err != nil {
				return fmt.Errorf("%s: %w", process, err)
			}
			f.atRest[process].cores = append(f.atRest[process].cores, (busy-before[process]).Seconds()/passed.Seconds())
		}
	}
	more, err := o.writes(ctx)
	if err != nil {
		return err
	}
	f.writes = bench.Runs{(more - written) / time.Since(began).Seconds()}
	for process, page := range pages {
		if err := f.atRest[process].measureMemory(ctx, t, process, page); err != nil {
			return err
		}
	}
	return nil
}

// measureMemory measures the memory of a process.
func (u *usage) measureMemory(ctx context.Context, t *testbed, process, page string) error {
	memory, err := t.resident(process)
	if err != nil {
		return err
	}
	heap, err := t.heap(ctx, process, page)
	if err != nil {
		return err
	}
	u.memory, u.heap = bench.Runs{memory / mib}, bench.Runs{heap / mib}
	return nil
}

// target is the 99th percentile of the milliseconds from the change of an
// EndpointSlice to the program's decision.
const target = 50

// maxWrites is the target of writes_at_rest.
const maxWrites = 1

// maxExcess is the target of excess_over_alone: noise.
const maxExcess = 1.25

// report adds the results and the verdict.
func (f *findings) report(r *bench.Report) error {
	labels := map[string]string{"services": fmt.Sprint(f.services), "endpoints": fmt.Sprint(f.services * endpoints)}
	f.alone.report(r, "", labels)
	f.besides.report(r, "_excess", labels)
	r.Add("controller_sync", "s", bench.Runs{f.controllerSync}, labels)
	r.Add("agent_sync", "s", bench.Runs{f.agentSync}, labels)
	r.Add("status_sync", "s", bench.Runs{f.statusSync}, labels)
	for _, process := range []string{agentProcess, controllerProcess} {
		u := f.atRest[process]
		r.Add(process+"_memory", "MiB", u.memory, labels)
		r.Add(process+"_heap", "MiB", u.heap, labels)
		r.Add(process+"_rest_cores", "cores", u.cores, labels)
	}
	r.Add("writes_at_rest", "1/s", f.writes, labels)
	r.Judge("writes_at_rest: requests per second with which controller and agent write while nothing changes",
		bench.Documented, bench.AtMost(maxWrites), f.writes.Median())
	f.many.report(r, labels)
	slow := f.alone.decided.Percentile(99)
	r.Add("endpointslice_to_program_p99_ms", "ms", bench.Runs{slow}, labels)
	r.Judge("endpointslice_to_program_p99_ms: 99 of 100 changes are decided by within so many milliseconds",
		bench.Documented, bench.AtMost(target), slow)
	ratio, err := r.AddRatio("excess_over_alone", f.besides.decided, f.alone.decided)
	if err != nil {
		return err
	}
	r.Judge("excess_over_alone: endpointslice_to_program_ms with a namespace that asks for too much over that without",
		bench.Documented, bench.AtMost(maxExcess), ratio)
	return nil
}

// report adds the distributions, with the suffix to their names.
func (c *changes) report(r *bench.Report, suffix string, labels map[string]string) {
	r.AddDistribution("endpointslice_to_program_ms"+suffix, "ms", c.decided, labels)
	r.AddDistribution("endpointslice_write_ms"+suffix, "ms", c.written, labels)
	r.AddDistribution("answer_to_program_ms"+suffix, "ms", c.followed, labels)
}
