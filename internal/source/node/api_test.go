// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/source"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// Services come from the API server that a file names, and routes from the file.
func TestAPISource(t *testing.T) {
	first := make(chan struct{})
	reported := sync.OnceFunc(func() { close(first) })
	var last atomic.Pointer[v1alpha1.BalancerNodeStatus]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer lb1.secret" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		if r.Method == http.MethodPut {
			defer reported()
			var report v1alpha1.BalancerNodeStatus
			if err := json.NewDecoder(r.Body).Decode(&report); err != nil || last.Load() == nil && !slices.Contains(report.Addresses, "10.0.2.1") {
				t.Errorf("report with the addresses %q, %v: want the peer's", report.Addresses, err)
			}
			last.Store(&report)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(w, `{"type":"PUT","object":{"metadata":{"namespace":"web","name":"shop","resourceVersion":"7"},"status":{"address":"10.1.1.1"},`+
			`"spec":{"forward":"l2dsr","listeners":[{"name":"http","port":80,"pool":"p"}],"pools":[{"name":"p"}]}}}`)
		fmt.Fprintln(w, `{"type":"SYNCED","version":"8"}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := "node: {name: lb1, interfaces: [eth0]}\nbgp: {asn: 65021, routerID: 10.0.2.11, peers: [{address: 10.0.2.1, asn: 65000}]}\n" +
		"apiServer: {urls: ['" + server.URL + "'], tokenFile: token}\n"
	write("token", "lb1.secret\n")
	write("fairlead.yaml", file)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options := Options{StateDir: filepath.Join(dir, "state"), Limits: dataplanetest.Limits(), Log: slog.New(slog.DiscardHandler)}
	settings, err := config.Open(filepath.Join(dir, "fairlead.yaml"), options.Log, config.Parser(options.Limits))
	if err != nil {
		t.Fatal(err)
	}
	from, err := OpenAPI(File{Source: settings}, options)
	if err != nil {
		t.Fatal(err)
	}
	// The first report has the peers, too: else the server would assign their addresses until the next one.
	if err := from.Server.Report(ctx, &v1alpha1.BalancerNodeStatus{}); err != nil {
		t.Error(err)
	}
	updates, ended := make(chan source.Update, 10), make(chan error)
	go func() {
		ended <- from.Run(ctx, func(u source.Update) error {
			updates <- u
			return nil
		})
	}()
	var services, peers int
	for services == 0 || peers == 0 {
		u := <-updates
		if u.Whole && len(u.Changed) == 1 && u.Changed[0].Name == "flb:web/shop/http" {
			services++
		}
		if u.Routes != nil && !u.Whole {
			peers += len(u.Routes.Peers)
		}
	}
	<-first
	state := from.Followed().Clouds
	for state.Synced.IsZero() {
		state = from.Followed().Clouds
	}
	if state.Server != server.URL || !state.Reachable || state.Objects != 1 {
		t.Errorf("the state is %+v", state)
	}
	write("fairlead.yaml", strings.Replace(file, "address: 10.0.2.1,", "address: 10.0.2.9,", 1))
	if err := from.Reload(); err != nil {
		t.Fatal(err)
	}
	for u := range updates {
		if u.Routes != nil && len(u.Routes.Peers) == 1 && u.Routes.Peers[0].Address.String() == "10.0.2.9" {
			break
		}
	}
	if err := from.Server.Report(ctx, &v1alpha1.BalancerNodeStatus{}); err != nil || !slices.Contains(last.Load().Addresses, "10.0.2.9") {
		t.Errorf("after a change of the peer: %v, addresses %q", err, last.Load().Addresses)
	}
	write("fairlead.yaml", strings.Replace(file, "tokenFile: token", "tokenFile: fairlead.yaml", 1))
	if err := from.Reload(); err == nil || !strings.Contains(err.Error(), "want one line with a token") {
		t.Errorf("a file without a token: %v", err)
	}
	write("fairlead.yaml", strings.Replace(file, server.URL, "https://other", 1))
	if err := from.Reload(); err == nil || !strings.Contains(err.Error(), "apiServer was ") || strings.Contains(err.Error(), "secret") {
		t.Errorf("another server: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := from.Forget(); err != nil {
		t.Error(err)
	}
}
