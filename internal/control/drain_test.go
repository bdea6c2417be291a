// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/store"
)

// Drain knows the node only.
func (*testAgent) Drain(_ context.Context, target store.Target) error {
	if target == (store.Target{}) {
		return nil
	}
	return errors.New(target.String() + ": not in the configuration")
}

func (a *testAgent) Undrain(ctx context.Context, target store.Target) error {
	return a.Drain(ctx, target)
}

// The progress of a drain is the number of flows that the target's backends still have.
func TestDrains(t *testing.T) {
	a := startAgent(t)
	one, two := netip.MustParseAddrPort("10.0.0.21:80"), netip.MustParseAddrPort("10.0.0.22:80")
	a.DP.SetFlows(web, one, 3)
	a.DP.SetFlows(web, two, 4)
	a.DP.SetFlows(dns, netip.MustParseAddrPort("[fd00::21]:53"), 5)
	since := time.Now().Add(-time.Minute)
	for _, target := range []store.Target{{}, {Service: "web"}, {Service: "web", Backend: one}, {Service: "gone"}} {
		a.Store.Drain(store.Drain{Target: target, Since: since})
	}
	drains := decode[[]observe.Drain](a.client().Drains(t.Context()))(t)
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
	if s := a.status(); !s.Draining || !s.DrainingSince.Equal(since) || s.Services.Drained != 1 || s.Backends.Drained != 4 {
		t.Errorf("status: draining %t since %s, %+v, %+v", s.Draining, s.DrainingSince, s.Services, s.Backends)
	}
}

// The server rejects an invalid target and doesn't pass it to the agent.
func TestInvalidDrainRequests(t *testing.T) {
	a := startAgent(t)
	client := a.http()
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
	if got := a.send("GET /v1/drain"); got != http.StatusMethodNotAllowed {
		t.Errorf("GET: status %d", got)
	}
}
