// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/reconcile"
	"fairlead.io/fairlead/internal/store"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

var (
	started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web     = lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}
	dns     = lb.VIP{Address: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: lb.UDP, Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 100}}
)

// services are "web" with two backends in use, one without next hop and one
// drained, and "dns" with one in use.
func services() []lb.Service {
	backend := func(address string, port uint16, weight int) lb.Backend {
		return lb.Backend{Address: netip.MustParseAddr(address), Port: port, Weight: weight}
	}
	return []lb.Service{
		{Name: "dns", VIP: dns, Forward: lb.IPIP, MinHealthy: 1, Backends: []lb.Backend{backend("fd00::21", 53, 1)}},
		{Name: "web", VIP: web, Forward: lb.L2DSR, MinHealthy: 1, Backends: []lb.Backend{
			backend("10.0.0.21", 80, 1), backend("10.0.0.22", 80, 1), backend("10.0.0.23", 80, 1), backend("10.0.0.24", 80, 0),
		}},
	}
}

// world is an agent on the fake data plane, served on a socket.
type world struct {
	t          *testing.T
	dp         *dataplanetest.Fake
	store      *store.Store
	reconciler *reconcile.Reconciler
	socket     string
	// routes is what the agent announces; nil: nothing.
	routes atomic.Pointer[observe.Routes]
	// broken makes every call of the data plane fail.
	broken atomic.Bool
}

// newWorld programs the services and serves them until the test ends.
func newWorld(t *testing.T) *world {
	w := &world{t: t, dp: dataplanetest.NewFake(), store: store.New(), socket: filepath.Join(t.TempDir(), "agent.sock")}
	w.dp.SetUnusable(netip.MustParseAddrPort("10.0.0.23:80"), "no route")
	w.dp.Fail = func(string, lb.VIP) error {
		if w.broken.Load() {
			return errors.New("broken")
		}
		return nil
	}
	quiet := slog.New(slog.DiscardHandler)
	w.reconciler = reconcile.New(w.dp, w.store, quiet)
	claim, err := control.ClaimSocket(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := claim.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error {
		w.reconciler.Run(ctx)
		return nil
	})
	observer := observe.NewObserver(w, observe.NewRecorder(quiet), quiet)
	group.Go(func() error {
		observer.Run(ctx)
		return nil
	})
	group.Go(func() error { return control.Serve(ctx, listener, w, observer, quiet) })
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(group.Wait(), w.dp.Close(), claim.Release()); err != nil {
			t.Error(err)
		}
	})
	w.set(services()...)
	return w
}

// Describe and the next ones make the world an agent.
func (w *world) Describe() observe.Status {
	return observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", Started: started,
		Config: observe.Config{Path: "/etc/fairlead.yaml", Digest: "d1", Loaded: started},
		DataPlane: observe.DataPlane{
			Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}},
		},
	}
}

func (w *world) Snapshot() store.Snapshot { return w.store.Snapshot() }

func (w *world) Routes() observe.Routes {
	if r := w.routes.Load(); r != nil {
		return *r
	}
	return observe.Routes{}
}

func (w *world) Stats(ctx context.Context) (dataplane.Stats, error) { return w.dp.Stats(ctx) }

func (w *world) Calling() time.Time { return w.reconciler.Calling() }

func (w *world) Attached() bool { return true }

func (w *world) Trace(ctx context.Context, packet dataplane.Packet) (dataplane.Trace, error) {
	return fakeTrace(ctx, packet)
}

func (w *world) Flows(ctx context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	return fakeFlows(ctx, query)
}

func (w *world) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	return w.dp.CountFlows(ctx)
}

func (w *world) Drain(ctx context.Context, target store.Target) error { return fakeDrain(ctx, target) }

func (w *world) Undrain(ctx context.Context, target store.Target) error {
	return fakeDrain(ctx, target)
}

func (w *world) Reload(context.Context) error {
	return errors.New("x.yaml:1:2: bad\nx.yaml:3:4: worse")
}

// set desires services and waits until the data plane has them or failed.
func (w *world) set(services ...lb.Service) {
	w.t.Helper()
	snapshot, err := w.store.Set(services)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if err := w.reconciler.Settled(ctx, snapshot.Revision); err != nil {
		w.t.Fatal(err)
	}
}

// decode reads an answer of the client into to.
func decode[T any](t *testing.T, body []byte, err error) T {
	t.Helper()
	var to T
	if err == nil {
		err = json.Unmarshal(body, &to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}
