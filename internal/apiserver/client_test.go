// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// clients are the tokens of a test by ID.
var clients = []Token{
	{ID: "web", Projects: []string{"web"}},
	{ID: "reader", Projects: []string{"web"}, ReadOnly: true},
	{ID: "other", Projects: []string{"other"}},
	{ID: "all", Projects: []string{"*"}},
	{ID: "node", Nodes: []string{"n1", "n2", "n3"}},
	{ID: "node4", Nodes: []string{"n4"}},
	{ID: "old", Projects: []string{"web"}, Expires: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
}

// api is a server, or several ones over one store, and the tokens of its clients.
type api struct {
	testing.TB
	servers []http.Handler
	// store is the store without its faults.
	store  Store
	faults *faulty
	tokens map[string]string
	// routes are by pattern.
	routes map[string]route
}

// newAPI returns servers over an embedded store.
func newAPI(t testing.TB, servers int) *api {
	t.Helper()
	return newAPIOf(t, newEmbedded(t), servers)
}

// newAPIOf is newAPI with another store.
func newAPIOf(t testing.TB, store Store, servers int) *api {
	t.Helper()
	a := &api{TB: t, store: store, faults: &faulty{Store: store}, tokens: map[string]string{}, routes: map[string]route{}}
	var lines strings.Builder
	for _, c := range clients {
		token, entry, err := NewToken(c)
		if err != nil {
			t.Fatal(err)
		}
		a.tokens[c.ID] = token
		lines.WriteString(entry.Line())
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	keys, err := openKeyring(Files{Tokens: path}, log)
	if err != nil {
		t.Fatal(err)
	}
	for range servers {
		s := newServer(a.faults, keys, 1_000_000, log)
		if f, is := store.(followed); is {
			s = newServer(struct {
				*faulty
				followed
			}{a.faults, f}, keys, 1_000_000, log)
		}
		a.servers = append(a.servers, s)
	}
	for _, r := range routes() {
		a.routes[r.method+" "+r.path] = r
	}
	return a
}

// answer is a response.
type answer struct {
	status int
	body   string
	header http.Header
}

// do sends a request as a client to one of the servers. Headers are pairs. The answer has to be a
// documented one.
func (a *api) do(server int, client, method, path, body string, headers ...string) answer {
	a.Helper()
	r := httptest.NewRequestWithContext(a.Context(), method, path, strings.NewReader(body))
	if client != "" {
		r.Header.Set("Authorization", "Bearer "+a.tokens[client])
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.servers[server].ServeHTTP(w, r)
	got := answer{w.Code, strings.TrimSuffix(w.Body.String(), "\n"), w.Header()}
	if route, known := a.routes[r.Pattern]; known && !slices.Contains(slices.Concat(route.successes, route.errors()), got.status) {
		a.Errorf("%s %s: status %d isn't documented", method, path, got.status)
	}
	if got.status >= 400 {
		var p httpError
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || p.Status != got.status || p.Title == "" || got.header.Get("Content-Type") != "application/problem+json" {
			a.Errorf("%s %s: status %d with the body %s", method, path, got.status, got.body)
		}
	}
	return got
}

// count returns how many load balancers there are in all projects.
func (a *api) count() int { return a.store.(interface{ count() int }).count() }

// must is do for a request whose status is known.
func (a *api) must(status int, client, method, path, body string, headers ...string) answer {
	a.Helper()
	got := a.do(0, client, method, path, body, headers...)
	if got.status != status {
		a.Errorf("%s %s %s: status %d, want %d: %s", method, path, body, got.status, status, got.body)
	}
	return got
}

// base has the load balancers of the project web.
const base = "/v1/projects/web/loadbalancers"
