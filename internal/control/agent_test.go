// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	agenttest "fairlead.io/fairlead/test/agent"
	"fairlead.io/fairlead/test/fake"
)

var (
	started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web     = fake.VIP("10.1.1.1")
	dns     = lb.VIP{Address: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: lb.UDP, Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 100}}
)

// services are "web" with two backends in use, one without next hop and one
// drained, and "dns" with one in use.
func services() []lb.Service {
	all := []lb.Service{
		fake.Service("dns", dns, "fd00::21"),
		fake.Service("web", web, "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24"),
	}
	all[0].Forward, all[1].Backends[3].Weight = lb.IPIP, 0
	return all
}

// testAgent is an agent on the fake data plane, served on a socket.
type testAgent struct {
	*agenttest.Agent
	t      testing.TB
	socket string
	// broken makes every call of the data plane fail.
	broken atomic.Bool
}

// newWorld programs the services and serves them until the test ends.
func startAgent(t testing.TB) *testAgent {
	a := &testAgent{t: t, socket: filepath.Join(t.TempDir(), "agent.sock")}
	a.Agent = agenttest.New(t, observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", Started: started,
		Config: source.File{Path: "/etc/fairlead.yaml", Digest: "d1", Loaded: started},
		DataPlane: observe.DataPlane{
			Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}},
		},
	})
	a.DP.SetUnusable(netip.MustParseAddrPort("10.0.0.23:80"), "no route")
	a.DP.Fail = func(string, lb.VIP) error {
		if a.broken.Load() {
			return errors.New("broken")
		}
		return nil
	}
	claim, err := control.ClaimSocket(a.socket)
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
	observer := observe.NewObserver(a, observe.NewRecorder(quiet), quiet)
	a.Start(t)
	fake.Run(t, fake.Part(observer.Run), func(ctx context.Context) error { return control.Serve(ctx, listener, a, observer, quiet) })
	a.Set(t, services()...)
	return a
}

func (a *testAgent) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	return a.DP.CountFlows(ctx)
}

func (a *testAgent) Reload(context.Context) error {
	return errors.New("x.yaml:1:2: bad\nx.yaml:3:4: worse")
}

func (a *testAgent) client() *control.Client { return control.Dial(a.socket) }

// http is a client of the socket for requests that control.Client doesn't make.
func (a *testAgent) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.socket)
	}}}
}

// decode reads an answer of the client.
func decode[T any](body []byte, err error) func(testing.TB) T {
	return func(t testing.TB) (to T) {
		t.Helper()
		if err == nil {
			err = json.Unmarshal(body, &to)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
}
