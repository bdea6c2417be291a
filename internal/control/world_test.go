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

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/observed"
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
	*observed.Agent
	t      testing.TB
	socket string
	// broken makes every call of the data plane fail.
	broken atomic.Bool
}

// newWorld programs the services and serves them until the test ends.
func newWorld(t testing.TB) *world {
	w := &world{t: t, socket: filepath.Join(t.TempDir(), "agent.sock")}
	w.Agent = observed.New(t, observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", Started: started,
		Config: observe.Config{Path: "/etc/fairlead.yaml", Digest: "d1", Loaded: started},
		DataPlane: observe.DataPlane{
			Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}},
		},
	})
	w.DP.SetUnusable(netip.MustParseAddrPort("10.0.0.23:80"), "no route")
	w.DP.Fail = func(string, lb.VIP) error {
		if w.broken.Load() {
			return errors.New("broken")
		}
		return nil
	}
	claim, err := control.ClaimSocket(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := claim.Release(); err != nil {
			t.Error(err)
		}
	})
	listener, err := claim.Listen()
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	observer := observe.NewObserver(w, observe.NewRecorder(quiet), quiet)
	w.Start(t)
	observed.Run(t, observed.Part(observer.Run), func(ctx context.Context) error { return control.Serve(ctx, listener, w, observer, quiet) })
	w.Set(t, services()...)
	return w
}

func (w *world) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	return w.DP.CountFlows(ctx)
}

func (w *world) Reload(context.Context) error {
	return errors.New("x.yaml:1:2: bad\nx.yaml:3:4: worse")
}

// decode reads an answer of the client into to.
func decode[T any](t testing.TB, body []byte, err error) T {
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
