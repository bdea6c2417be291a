// SPDX-License-Identifier: Apache-2.0

// Package kubernetes measures how Fairlead follows a Kubernetes cluster: the time from
// a change of an EndpointSlice, or of a member by the HTTP API (api.go), to the program's
// decision, the time that the controller and an agent take to synchronise thousands of
// Services, and their cost at rest.
//
// It writes objects into a real API server, runs the processes of controller and agent
// (testbed.go), and traces packets through the program (change.go). The pods of the
// objects (objects.yaml) don't run. In turn with the changes it measures as many besides a
// namespace that requests far more than it may have. At last it starts more agents (agents.go).
// cmd/fairlab calls Run.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// seen is the findings of a cell, each of which sets some of them.
type seen struct {
	// ControllerSync, AgentSync and StatusSync are seconds of the initial synchronisation.
	ControllerSync, AgentSync, StatusSync float64
	Changes                               changes
	// AtRest is the cost by process name, Writes those that the API server gets per second while
	// nothing changes.
	AtRest map[string]usage
	Writes float64
	Agents many
}

// usage is the cost of a process: processors in each round, and MiB.
type usage struct {
	Cores        bench.Runs
	Memory, Heap float64
}

// The names of cells.
const (
	synchronised = "synchronisation"
	alone        = "changes"
	besides      = "changes besides a namespace that requests too much"
	atRest       = "at rest"
	withAgents   = "further agents"
)

// Run measures; it leaves nothing, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	p := newPlan(cfg.Quick)
	t := &testbed{}
	var synchronisation seen
	var addresses []netip.Addr
	b := bench.Bench[seen]{Name: "kubernetes", Report: cfg.report, Groups: []bench.Group[seen]{
		bench.Single(bench.Cell[seen]{Name: synchronised, Measure: func(context.Context) (seen, error) { return synchronisation, nil }}),
		bench.Single(bench.Cell[seen]{Name: atRest, Measure: func(ctx context.Context) (seen, error) { return t.rest(ctx, p) }}),
		{Name: alone, Rounds: 2, Cells: []bench.Cell[seen]{
			{Name: alone, Measure: func(ctx context.Context) (s seen, err error) {
				s.Changes, err = t.change(ctx, addresses, cfg.Changes/2, tracePause, t.objects.setReady)
				return s, err
			}},
			{Name: besides, Measure: func(ctx context.Context) (s seen, err error) {
				if err := errors.Join(t.objects.write(ctx, "excess", 0, p.excess), netlab.Sleep(ctx, p.settle)); err != nil {
					return s, err
				}
				if s.Changes, err = t.change(ctx, addresses, cfg.Changes/2, tracePause, t.objects.setReady); err != nil {
					return s, err
				}
				return s, errors.Join(t.objects.empty(ctx, t.objects.excessive()), netlab.Sleep(ctx, p.settle))
			}},
		}},
	}}
	if cfg.Agents > 1 {
		b.Groups = append(b.Groups, bench.Single(bench.Cell[seen]{Name: withAgents, Measure: func(ctx context.Context) (s seen, err error) {
			s.Agents, err = t.measureAgents(ctx, p)
			return s, err
		}}))
	}
	return run(ctx, cfg, t, b, func(ctx context.Context) (err error) {
		cfg.Log("writing %d Services with %d endpoints each", cfg.Services, endpoints)
		if err := t.objects.fill(ctx); err != nil {
			return err
		}
		addresses, err = t.synchronise(ctx, &synchronisation)
		return err
	})
}

// run measures a bench in a cluster and a lab, in which start writes objects and starts processes,
// and removes all that was made.
func run[T any](ctx context.Context, cfg Config, t *testbed, b bench.Bench[T], start func(context.Context) error) (*bench.Report, error) {
	if cfg.Services < 1 || cfg.Services > maxServices {
		return nil, fmt.Errorf("%d services: want 1 to %d", cfg.Services, maxServices)
	}
	if cfg.Agents < 1 || cfg.Agents > maxAgents {
		return nil, fmt.Errorf("%d agents: want 1 to %d", cfg.Agents, maxAgents)
	}
	api, err := clientcmd.NewDefaultClientConfig(*cfg.Kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, bench.Unavailable{Err: fmt.Errorf("a cluster is needed, such as \"go run ./test/cluster/up COMMAND\" starts: %w", err)}
	}
	if t.objects, err = newObjects(api, cfg.Name, cfg.Services, cfg.Agents); err != nil {
		return nil, err
	}
	if err := t.objects.check(ctx); err != nil {
		return nil, bench.Unavailable{Err: err}
	}
	for _, g := range b.Groups {
		for i := range g.Cells {
			g.Cells[i].Programs = []string{"fairlead"}
		}
	}
	b.Stage = bench.Stage{Remove: t.down, Setup: func(ctx context.Context) error {
		if err := t.up(ctx, cfg, api); err != nil {
			return err
		}
		return start(ctx)
	}}
	return bench.Run(ctx, cfg.Config, b)
}

// synchronise starts the controller and then the agent, measures the time of their
// initial synchronisation, and returns the addresses of the Services.
func (t *testbed) synchronise(ctx context.Context, s *seen) ([]netip.Addr, error) {
	began := time.Now()
	if err := t.startController(ctx, t.objects.name); err != nil {
		return nil, err
	}
	addresses, err := t.objects.awaitServices(ctx, hasGroup, func() error { return t.running(controllerProcess) })
	if err != nil {
		return nil, err
	}
	s.ControllerSync = time.Since(began).Seconds()
	began = time.Now()
	if err := t.startAgent(ctx, t.balancer); err != nil {
		return nil, err
	}
	if err := t.awaitProgrammed(ctx, t.balancer, len(addresses)); err != nil {
		return nil, err
	}
	s.AgentSync = time.Since(began).Seconds()
	_, err = t.objects.awaitServices(ctx, isProgrammed, func() error { return t.running(agentProcess) })
	s.StatusSync = time.Since(began).Seconds()
	return addresses, err
}

// rest measures the cost and the writes of the processes while nothing changes.
func (t *testbed) rest(ctx context.Context, p plan) (s seen, err error) {
	pages := map[string]string{agentProcess: agentPage, controllerProcess: controllerPage}
	if err := netlab.Sleep(ctx, p.settle); err != nil {
		return s, err
	}
	cores := map[string]bench.Runs{}
	began := time.Now()
	writes, err := t.objects.countWrites(ctx, func() error {
		before, err := t.busy(pages)
		for n := 0; n < p.rounds && err == nil; n++ {
			at := time.Now()
			if err := netlab.Sleep(ctx, p.round); err != nil {
				return err
			}
			var after map[string]time.Duration
			after, err = t.busy(pages)
			for process := range pages {
				cores[process] = append(cores[process], (after[process]-before[process]).Seconds()/time.Since(at).Seconds())
			}
			before = after
		}
		return err
	})
	if err != nil {
		return s, err
	}
	s.Writes, s.AtRest = writes/time.Since(began).Seconds(), map[string]usage{}
	for process, page := range pages {
		used, err := t.memory(ctx, process, page)
		if err != nil {
			return s, err
		}
		used.Cores = cores[process]
		s.AtRest[process] = used
	}
	return s, nil
}

// busy is the processor time of processes so far.
func (t *testbed) busy(pages map[string]string) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	for process := range pages {
		busy, err := t.process(process).Busy()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", process, err)
		}
		all[process] = busy
	}
	return all, nil
}

// target is the 99th percentile of the milliseconds from the change of an
// EndpointSlice to the program's decision.
const target = 50

// maxWrites is the target of writes_at_rest.
const maxWrites = 1

// maxLoss is the target of node_loss_status: seconds.
const maxLoss = 5

// maxExcess is the target of excess_over_alone: noise.
const maxExcess = 1.25

// report adds the results and the verdicts.
func (c *Config) report(r *bench.Report, found bench.Found[seen]) error {
	labels := map[string]string{"services": fmt.Sprint(c.Services), "endpoints": fmt.Sprint(c.Services * endpoints)}
	one := func(name, unit string, value float64) { r.Add(name, unit, bench.Runs{value}, labels) }
	without, with := reportChanges(r, "", found[alone], labels), reportChanges(r, "_excess", found[besides], labels)
	for _, s := range found[synchronised] {
		one("controller_sync", "s", s.ControllerSync)
		one("agent_sync", "s", s.AgentSync)
		one("status_sync", "s", s.StatusSync)
	}
	for _, s := range found[atRest] {
		for _, process := range []string{agentProcess, controllerProcess} {
			used := s.AtRest[process]
			one(process+"_memory", "MiB", used.Memory)
			one(process+"_heap", "MiB", used.Heap)
			r.Add(process+"_rest_cores", "cores", used.Cores, labels)
		}
		one("writes_at_rest", "1/s", s.Writes)
		r.Judge("writes_at_rest: requests per second with which controller and agent write while nothing changes",
			bench.Documented, bench.AtMost(maxWrites), s.Writes)
	}
	for _, s := range found[withAgents] {
		with := maps.Clone(labels)
		with["agents"] = fmt.Sprint(c.Agents)
		r.Add("writes_at_rest_agents", "1/s", bench.Runs{s.Agents.Writes}, with)
		r.Add("node_loss_status", "s", bench.Runs{s.Agents.Converged}, with)
		r.Add("node_loss_writes", "", bench.Runs{s.Agents.LossWrites}, with)
		r.Judge(fmt.Sprintf("writes_at_rest_agents: requests per second with which %d agents and the controller write while nothing changes", c.Agents),
			bench.Documented, bench.AtMost(maxWrites), s.Agents.Writes)
		r.Judge("node_loss_status: seconds until the group's status follows the loss of a node",
			bench.Documented, bench.AtMost(maxLoss), s.Agents.Converged)
	}
	if without == nil {
		return nil
	}
	slow := without.Percentile(99)
	one("endpointslice_to_program_p99_ms", "ms", slow)
	r.Judge("endpointslice_to_program_p99_ms: 99 of 100 changes are decided by within so many milliseconds",
		bench.Documented, bench.AtMost(target), slow)
	return r.Compare(bench.Comparison{
		Name: "excess_over_alone", A: with, B: without, Target: bench.AtMost(maxExcess),
		Claim: "excess_over_alone: endpointslice_to_program_ms with a namespace that asks for too much over that without",
	})
}

// reportChanges adds the distributions of all rounds, with the suffix to their names. It returns
// the milliseconds until the program's decisions.
func reportChanges(r *bench.Report, suffix string, rounds []seen, labels map[string]string) bench.Runs {
	var all changes
	for _, s := range rounds {
		all.Decided = append(all.Decided, s.Changes.Decided...)
		all.Written = append(all.Written, s.Changes.Written...)
		all.Followed = append(all.Followed, s.Changes.Followed...)
	}
	r.AddDistribution("endpointslice_to_program_ms"+suffix, "ms", all.Decided, labels)
	r.AddDistribution("endpointslice_write_ms"+suffix, "ms", all.Written, labels)
	r.AddDistribution("answer_to_program_ms"+suffix, "ms", all.Followed, labels)
	return all.Decided
}
