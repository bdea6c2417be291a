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
	"fairlead.io/fairlead/test/observed"
)

// world is an agent on the fake data plane that is shown at a loopback address.
type world struct {
	*observed.Agent
	t       testing.TB
	address string
	events  *observe.Recorder
	// unready is why the agent is not, nil if it is.
	unready atomic.Pointer[error]
	// stop ends the agent.
	stop context.CancelFunc
}

// newWorld shows an agent with so many services until the test ends. Number 3333
// can't be programmed.
func newWorld(t testing.TB, services int) *world {
	w := &world{t: t}
	w.Agent = observed.New(t, observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", Config: observe.Config{Path: "/etc/fairlead.yaml"},
		DataPlane: observe.DataPlane{Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}}},
	})
	w.DP.Fail = func(_ string, of lb.VIP) error {
		if of == vip(3333) {
			return errors.New("no room")
		}
		return nil
	}
	quiet := slog.New(slog.DiscardHandler)
	w.events = observe.NewRecorder(quiet)
	observer := observe.NewObserver(w, w.events, quiet)
	server := web.New(web.Config{
		Observer: observer, Log: quiet,
		Ready: func() error {
			if err := w.unready.Load(); err != nil {
				return *err
			}
			return nil
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = listener.Addr().String()
	w.Start(t)
	w.Set(t, list(services)...)
	w.stop = observed.Run(t, observed.Part(observer.Run), func(ctx context.Context) error { return server.Serve(ctx, listener) })
	return w
}

// list returns services "s0", "s1" … of two backends each.
func list(n int) []lb.Service {
	services := make([]lb.Service, n)
	for i := range services {
		services[i] = lb.Service{
			Name: fmt.Sprintf("s%d", i), VIP: vip(i), Forward: lb.L2DSR, MinHealthy: 1,
			Backends: []lb.Backend{
				{Address: netip.MustParseAddr("10.0.0.21"), Port: 80, Weight: 1},
				{Address: netip.MustParseAddr("10.0.0.22"), Port: 80, Weight: 1},
			},
		}
	}
	return services
}

// announcing is an agent's that announces so many VIPs to so many peers; the last
// VIP is not announced, and the last peer not there unless it is the only one.
func announcing(vips, peers int) *observe.Routes {
	r := &observe.Routes{Enabled: true, ASN: 65021}
	for i := range vips {
		r.Announcements = append(r.Announcements, observe.Announcement{
			Prefix: netip.PrefixFrom(vip(i).Address, 32), Announced: i < vips-1, Reason: "damped for 4s",
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

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// vip is that of service i.
func vip(i int) lb.VIP {
	return lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP}
}

// get asks for a path.
func (w *world) get(path string) (answer, string) {
	w.t.Helper()
	return w.do(w.request(http.MethodGet, path, http.NoBody))
}

func (w *world) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.address+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

// answer is what a test checks in addition to the body.
type answer struct {
	StatusCode int
	Header     http.Header
}

func (w *world) do(request *http.Request) (answer, string) {
	w.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(body)
}
