// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
)

// fakeDrain knows the node only.
func fakeDrain(_ context.Context, target observe.DrainTarget) error {
	if target == (observe.DrainTarget{}) {
		return nil
	}
	return errors.New(target.String() + ": not in the configuration")
}

// How far a drain has come is what its targets' backends still have.
func TestDrains(t *testing.T) {
	w := newWorld(t)
	one, two := netip.MustParseAddrPort("10.0.0.21:80"), netip.MustParseAddrPort("10.0.0.22:80")
	w.dp.SetFlows(web, one, 3)
	w.dp.SetFlows(web, two, 4)
	w.dp.SetFlows(dns, netip.MustParseAddrPort("[fd00::21]:53"), 5)
	since := time.Now().Add(-time.Minute)
	for _, target := range []store.Target{{}, {Service: "web"}, {Service: "web", Backend: one}, {Service: "gone"}} {
		w.store.Drain(store.Drain{Target: target, Since: since})
	}
	body, err := observe.Dial(w.socket).Drains(t.Context())
	drains := decode[[]observe.Drain](t, body, err)
	if len(drains) != 4 {
		t.Fatalf("%d drains, want 4", len(drains))
	}
	for i, want := range []struct {
		name    string
		flows   int
		silent  time.Duration
		desired bool
	}{{"node", 12, 0, true}, {"gone", 0, 0, false}, {"web", 7, 9 * time.Minute, true}, {"web 10.0.0.21:80", 3, 9 * time.Minute, true}} {
		d := drains[i]
		if d.String() != want.name || d.Flows != want.flows || d.Desired != want.desired || !d.Since.Equal(since) ||
			d.Silent > want.silent || d.Silent < want.silent-10*time.Second {
			t.Errorf("drain %+v, want %+v", d, want)
		}
	}
	if s := w.status(); !s.Draining || !s.DrainingSince.Equal(since) || s.Services.Drained != 1 || s.Backends.Drained != 4 {
		t.Errorf("status: draining %t since %s, %+v, %+v", s.Draining, s.DrainingSince, s.Services, s.Backends)
	}
}

func TestDrainTable(t *testing.T) {
	target := func(service, backend string) observe.DrainTarget {
		id, _ := netip.ParseAddrPort(backend)
		return observe.DrainTarget{Service: service, Backend: id}
	}
	drains := []observe.Drain{
		{Since: started, Desired: true, Flows: 12, PacketsPerSecond: 1500},
		{DrainTarget: target("web", ""), Since: started, Desired: true},
		{DrainTarget: target("web", "10.0.0.21:80"), Since: started, Desired: true, Flows: 3, PacketsPerSecond: 20, Silent: 9 * time.Minute},
		{DrainTarget: target("gone", ""), Since: started},
	}
	var out bytes.Buffer
	err := observe.WriteDrains(&out, drains)
	for _, d := range drains {
		out.WriteString(d.Progress() + "\n")
	}
	golden(t, "drains.txt", &out, err)
}

func TestDrainTargetCovers(t *testing.T) {
	at := func(service, backend string, port uint16) observe.DrainTarget {
		target := observe.DrainTarget{Service: service}
		if backend != "" {
			target.Backend = netip.AddrPortFrom(netip.MustParseAddr(backend), port)
		}
		return target
	}
	one := at("web", "10.0.0.1", 80)
	for _, tt := range []struct {
		named observe.DrainTarget
		want  bool
	}{
		{one, true}, {at("web", "10.0.0.1", 0), true}, {at("web", "10.0.0.1", 81), false}, {at("dns", "10.0.0.1", 0), false},
		{at("web", "", 0), false}, {at("", "", 0), false}, {at("web", "10.0.0.2", 0), false},
	} {
		if got := tt.named.Covers(one); got != tt.want {
			t.Errorf("%s covers %s: %t", tt.named, one, got)
		}
	}
}

// What can't be a target is refused before anybody is asked to drain it.
func TestRefusedDrains(t *testing.T) {
	w := newWorld(t)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
	}, DisableKeepAlives: true}}
	for body, want := range map[string]int{
		`{}`:                    http.StatusOK,
		`{"service": "nosuch"}`: http.StatusUnprocessableEntity,
		``:                      http.StatusBadRequest,
		`{`:                     http.StatusBadRequest,
		`{"service": 1}`:        http.StatusBadRequest,
		`{"backend": "here"}`:   http.StatusBadRequest,
		`{"nonsense": true}`:    http.StatusBadRequest,
		`{"service": "` + strings.Repeat("a", 1<<16): http.StatusBadRequest,
	} {
		for _, path := range []string{"drain", "undrain"} {
			response, err := client.Post("http://agent/v1/"+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s %.30s: status %d, want %d", path, body, response.StatusCode, want)
			}
		}
	}
	if got := w.send("GET /v1/drain"); got != http.StatusMethodNotAllowed {
		t.Errorf("GET: status %d", got)
	}
}
