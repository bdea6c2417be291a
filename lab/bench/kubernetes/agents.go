// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
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
	// Writes are those that the API server gets per second while nothing changes.
	Writes float64
	// Converged are the seconds from before Kubernetes says that a node isn't ready until the group's
	// status no longer counts it, and LossWrites the writes until then and while it settles.
	Converged, LossWrites float64
}

// lossPause is the time between two looks at the group's status.
const lossPause = 20 * time.Millisecond

// measureAgents starts the other agents, counts writes at rest, and then kills the last agent, whose
// node Kubernetes declares not ready.
func (t *testbed) measureAgents(ctx context.Context, p plan) (m many, err error) {
	for i, b := range t.others {
		if err := errors.Join(t.startAgent(ctx, b), t.objects.write(ctx, "agent", i+1, 1)); err != nil {
			return m, err
		}
	}
	for _, b := range t.others {
		// Some services that ask for too much are served, too.
		if err := t.awaitProgrammed(ctx, b, t.objects.services); err != nil {
			return m, err
		}
	}
	if err := t.objects.awaitGroup(ctx, t.objects.agents); err != nil {
		return m, err
	}
	if err := netlab.Sleep(ctx, p.settle); err != nil {
		return m, err
	}
	// Each agent reports once a minute.
	while := time.Duration(p.rounds) * p.round
	writes, err := t.objects.countWrites(ctx, func() error { return netlab.Sleep(ctx, while) })
	if err != nil {
		return m, err
	}
	m.Writes = writes / while.Seconds()
	m.LossWrites, err = t.objects.countWrites(ctx, func() error {
		m.Converged, err = t.lose(ctx)
		return errors.Join(err, netlab.Sleep(ctx, p.settle))
	})
	return m, err
}

// lose kills the last agent and has its node not ready. It returns the seconds until the group's
// status says so.
func (t *testbed) lose(ctx context.Context) (float64, error) {
	last := t.others[len(t.others)-1]
	if err := t.Kill(ctx, last.host.Name, agentProcess); err != nil {
		return 0, err
	}
	began := time.Now()
	var node core.Node
	if err := t.objects.client.Get(ctx, client.ObjectKey{Name: last.node}, &node); err != nil {
		return 0, err
	}
	node.Status.Conditions[0].Status = core.ConditionUnknown
	if err := t.objects.client.Status().Update(ctx, &node); err != nil {
		return 0, fmt.Errorf("node %s: %w", last.node, err)
	}
	err := t.objects.awaitGroup(ctx, t.objects.agents-1)
	return time.Since(began).Seconds(), err
}

// countWrites returns how often the API server is written to during a call.
func (o *objects) countWrites(ctx context.Context, during func() error) (float64, error) {
	before, err := o.writes(ctx)
	if err != nil {
		return 0, err
	}
	if err := during(); err != nil {
		return 0, err
	}
	after, err := o.writes(ctx)
	return after - before, err
}

// awaitGroup waits until the group's status says that so many nodes are ready, and have programmed
// all services.
func (o *objects) awaitGroup(ctx context.Context, ready int) error {
	return bench.Await(ctx, syncTimeout, lossPause, func(ctx context.Context) error {
		var g v1alpha1.LoadBalancerGroup
		err := o.client.Get(ctx, client.ObjectKey{Name: o.name}, &g)
		if err == nil && (int(g.Status.ReadyNodes) != ready || !apimeta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionProgrammed)) {
			err = fmt.Errorf("group: %d ready nodes, want %d: %+v", g.Status.ReadyNodes, ready, g.Status.Conditions)
		}
		return err
	})
}
