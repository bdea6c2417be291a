// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/source"
	agenttest "fairlead.io/fairlead/test/agent"
	"fairlead.io/fairlead/test/fake"
)

// testAgent is an agent on the fake data plane that is shown at a loopback address.
type testAgent struct {
	*agenttest.Agent
	t       testing.TB
	address string
	events  *observe.Recorder
	// unready is why the agent is not, nil if it is.
	unready atomic.Pointer[error]
	// stop ends the agent.
	stop context.CancelFunc
}

// startAgent shows an agent with so many services until the test ends. Number 333
// can't be programmed.
func startAgent(t testing.TB, services int) *testAgent {
	a := &testAgent{t: t}
	a.Agent = agenttest.New(t, observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", Config: source.File{Path: "/etc/fairlead.yaml"},
		DataPlane: observe.DataPlane{Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}}},
	})
	a.DP.Fail = func(_ string, of lb.VIP) error {
		if of == fake.Numbered(333) {
			return errors.New("no room")
		}
		return nil
	}
	quiet := slog.New(slog.DiscardHandler)
	a.events = observe.NewRecorder(quiet)
	observer := observe.NewObserver(a, a.events, quiet)
	server := web.New(web.Config{
		Observer: observer, Log: quiet,
		Ready: func() error {
			if err := a.unready.Load(); err != nil {
				return *err
			}
			return nil
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.address = listener.Addr().String()
	a.Start(t)
	a.Set(t, list(services)...)
	a.stop = fake.Run(t, fake.Part(observer.Run), func(ctx context.Context) error { return server.Serve(ctx, listener) })
	return a
}

// list returns services "s0", "s1" … of two backends each.
func list(n int) []lb.Service {
	services := make([]lb.Service, n)
	for i := range services {
		services[i] = fake.Service(fmt.Sprintf("s%d", i), fake.Numbered(i), "10.0.0.21", "10.0.0.22")
	}
	return services
}

// announcing is an agent's that announces so many VIPs to so many peers; the last
// VIP is not announced, and the last peer not there unless it is the only one.
func announcing(vips, peers int) *observe.Routes {
	r := &observe.Routes{Enabled: true, ASN: 65021}
	for i := range vips {
		r.Announcements = append(r.Announcements, observe.Announcement{
			Prefix: netip.PrefixFrom(fake.Numbered(i).Address, 32), Announced: i < vips-1, Reason: "damped for 4s",
			Services: []string{"a", "b", "c", "d", "e"},
		})
	}
	for i := range peers {
		state := bgp.Established
		if i > 0 && i == peers-1 {
			state = bgp.Idle
		}
		r.Peers = append(r.Peers, bgp.PeerState{Address: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), State: state})
	}
	return r
}

// get asks for a path.
func (a *testAgent) get(path string) (answer, string) {
	a.t.Helper()
	return a.do(a.request(http.MethodGet, path, http.NoBody))
}

func (a *testAgent) request(method, path string, body io.Reader) *http.Request {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, "http://"+a.address+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	return request
}

// answer has the parts of a response that tests check in addition to the body.
type answer struct {
	StatusCode int
	Header     http.Header
}

func (a *testAgent) do(request *http.Request) (answer, string) {
	a.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(body)
}
