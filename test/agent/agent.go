// SPDX-License-Identifier: Apache-2.0

// Package agenttest has an agent on the fake data plane, for tests of the parts that show agents.
package agenttest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fake"
)

// Agent is an observe.Agent.
type Agent struct {
	// Status is the agent's own report.
	Status     observe.Status
	DP         *dataplanetest.Fake
	Store      *store.Store
	Reconciler *reconcile.Reconciler
	// Announced are its routes; nil: none.
	Announced atomic.Pointer[observe.Routes]
	// Unreadable is why its counters can't be read; nil: they can.
	Unreadable atomic.Pointer[error]
}

// New returns an agent without services, whose data plane is closed when the test ends.
func New(t testing.TB, status observe.Status) *Agent {
	a := &Agent{Status: status, DP: dataplanetest.NewFake(), Store: store.New()}
	a.Reconciler = reconcile.New(a.DP, a.Store, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := a.DP.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// Start runs the reconciler until the test ends.
func (a *Agent) Start(t testing.TB) { fake.Run(t, fake.Part(a.Reconciler.Run)) }

// Set desires services and waits until the data plane has them or failed.
func (a *Agent) Set(t testing.TB, services ...lb.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	snapshot, err := a.Store.Set(services)
	if err == nil {
		err = a.Reconciler.Settled(ctx, snapshot.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Describe implements observe.Agent.
func (a *Agent) Describe() observe.Status { return a.Status }

// Snapshot implements observe.Agent.
func (a *Agent) Snapshot() store.Snapshot { return a.Store.Snapshot() }

// Routes implements observe.Agent.
func (a *Agent) Routes() observe.Routes {
	if r := a.Announced.Load(); r != nil {
		return *r
	}
	return observe.Routes{}
}

// Stats implements observe.Agent.
func (a *Agent) Stats(ctx context.Context) (dataplane.Stats, error) {
	if err := a.Unreadable.Load(); err != nil {
		return dataplane.Stats{}, *err
	}
	return a.DP.Stats(ctx)
}

// Calling implements observe.Agent.
func (a *Agent) Calling() time.Time { return a.Reconciler.Calling() }

// Attached implements observe.Agent.
func (a *Agent) Attached() bool { return true }
