// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/agent"
	"fairlead.io/fairlead/internal/config"
)

// The agent doesn't start without an address that was asked for; the default one
// it can do without.
func TestTakenAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := netip.MustParseAddrPort(taken.Addr().String())
	var said syncBuffer
	log := slog.New(slog.NewTextHandler(&said, nil))

	page, err := agent.ListenPage(config.Observe{Listen: address, Explicit: true}, log)
	if want := "observe.listen " + address.String() + ": bind: address already in use"; page != nil || err == nil || err.Error() != want {
		t.Errorf("chosen: error %v, want %s", err, want)
	}
	page, err = agent.ListenPage(config.Observe{Listen: address}, log)
	if page != nil || err != nil {
		t.Errorf("default: %v, error %v, want neither", page, err)
	}
	if !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), address.String()) {
		t.Errorf("the log says %q", said.String())
	}
	page, err = agent.ListenPage(config.Observe{}, log)
	if page != nil || err != nil {
		t.Errorf("none: %v, error %v, want neither", page, err)
	}
}

func TestAgentHasPage(t *testing.T) {
	a := startAgent(t)
	_, where, _ := strings.Cut(a.show("status"), "page        ")
	origin, _, _ := strings.Cut(where, "\n")
	for path, want := range map[string]string{
		"":              "<title>Fairlead</title>",
		"api/v1/status": `"node":"lb1"`,
		"metrics":       "fairlead_build_info",
		"readyz":        "ok",
		"healthz":       "ok",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, origin+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("/%s: status %d, error %v, want %q in\n%.300s", path, response.StatusCode, err, want, body)
		}
	}
}
