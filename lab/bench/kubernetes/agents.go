// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	core "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// many has the measurements with all agents.
type many struct {
	agents int
	// writes are those that the API server gets per second while nothing changes.
	writes float64
	// converged are the seconds from before Kubernetes says that a node isn't ready until the group's
	// status no longer counts it, and lossWrites the writes until then and while it settles.
	converged, lossWrites float64
}

// lossPause is the time between two looks at the group's status.
const lossPause = 20 * time.Millisecond

// maxLoss is the target of node_loss_status: seconds.
const maxLoss = 5

// measure starts the other agents, counts writes at rest, and then kills the last agent, whose
// node Kubernetes declares not ready.
func (m *many) measure(ctx context.Context, cfg Config, o *objects, t *testbed, p plan) error {
	m.agents = cfg.Agents
	for i, b := range t.others {
		if err := errors.Join(t.startAgent(ctx, b), o.create(ctx, o.agentPod(i+1))); err != nil {
			return err
		}
	}
	for _, b := range t.others {
		// Some services that ask for too much are served, too.
		if err := t.awaitProgrammed(ctx, b, cfg.Services); err != nil {
			return err
		}
	}
	if err := o.awaitGroup(ctx, cfg.Agents); err != nil {
		return err
	}
	if err := netlab.Sleep(ctx, p.settle); err != nil {
		return err
	}
	// Each agent reports once a minute.
	writes, err := o.countWrites(ctx, time.Duration(p.rounds)*p.round)
	if err != nil {
		return err
	}
	m.writes = writes / (time.Duration(p.rounds) * p.round).Seconds()
	return m.lose(ctx, o, t, p)
}

// lose kills the last agent and has its node not ready.
func (m *many) lose(ctx context.Context, o *objects, t *testbed, p plan) error {
	last := t.others[len(t.others)-1]
	if err := t.Kill(ctx, last.host.Name, agentProcess); err != nil {
		return err
	}
	before, err := o.writes(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	var node core.Node
	if err := o.client.Get(ctx, client.ObjectKey{Name: last.node}, &node); err != nil {
		return err
	}
	node.Status.Conditions[0].Status = core.ConditionUnknown
	if err := o.client.Status().Update(ctx, &node); err != nil {
		return fmt.Errorf("node %s: %w", last.node, err)
	}
	if err := o.awaitGroup(ctx, m.agents-1); err != nil {
		return err
	}
	m.converged = time.Since(began).Seconds()
	if err := netlab.Sleep(ctx, p.settle); err != nil {
		return err
	}
	after, err := o.writes(ctx)
	m.lossWrites = after - before
	return err
}

// countWrites returns how often the API server is written to in a time.
func (o *objects) countWrites(ctx context.Context, d time.Duration) (float64, error) {
	before, err := o.writes(ctx)
	if err != nil {
		return 0, err
	}
	if err := netlab.Sleep(ctx, d); err != nil {
		return 0, err
	}
	after, err := o.writes(ctx)
	return after - before, err
}

// awaitGroup waits until the group's status says that so many nodes are ready, and have programmed
// all services.
func (o *objects) awaitGroup(ctx context.Context, ready int) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		var g v1alpha1.LoadBalancerGroup
		if err := o.client.Get(ctx, client.ObjectKey{Name: o.name}, &g); err != nil {
			return err
		}
		if int(g.Status.ReadyNodes) == ready && apimeta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionProgrammed) {
			return nil
		}
		if err := netlab.Sleep(ctx, lossPause); err != nil {
			return fmt.Errorf("group: %d ready nodes, want %d: %+v: %w", g.Status.ReadyNodes, ready, g.Status.Conditions, err)
		}
	}
}

func (m *many) report(r *bench.Report, labels map[string]string) {
	if m.agents == 0 {
		return
	}
	with := map[string]string{"agents": fmt.Sprint(m.agents)}
	maps.Copy(with, labels)
	r.Add("writes_at_rest_agents", "1/s", bench.Runs{m.writes}, with)
	r.Add("node_loss_status", "s", bench.Runs{m.converged}, with)
	r.Add("node_loss_writes", "", bench.Runs{m.lossWrites}, with)
	r.Judge(fmt.Sprintf("writes_at_rest_agents: requests per second with which %d agents and the controller write while nothing changes", m.agents),
		bench.Documented, bench.AtMost(maxWrites), m.writes)
	r.Judge("node_loss_status: seconds until the group's status follows the loss of a node",
		bench.Documented, bench.AtMost(maxLoss), m.converged)
}
