// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/source/kube"
)

// Another agent follows unless the API server responds that the DaemonSet is deleted, or
// knows the agent no more.
func TestUninstalled(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "agent"%s}}`
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/apis/apps/v1/namespaces/lb/daemonsets/agent" {
				status = http.StatusBadRequest
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   bool
	}{
		"there":         {answer(http.StatusOK, fmt.Sprintf(object, "")), false},
		"being deleted": {answer(http.StatusOK, fmt.Sprintf(object, `, "deletionTimestamp": "2026-01-01T00:00:00Z"`)), true},
		"gone":          {answer(http.StatusNotFound, "{}"), true},
		"no right":      {answer(http.StatusForbidden, "{}"), true},
		"no account":    {answer(http.StatusUnauthorized, "{}"), true},
		"no right yet":  {allowedAfter(3, answer(http.StatusForbidden, "{}"), answer(http.StatusOK, fmt.Sprintf(object, ""))), false},
		"out of order":  {answer(http.StatusInternalServerError, "{}"), false},
		"not JSON":      {answer(http.StatusOK, "<html>"), false},
		"no answer":     {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.answer)
			t.Cleanup(server.Close)
			if got := openAt(t, t.TempDir(), server.URL, "agent").Uninstalled(t.Context()); got != c.want {
				t.Errorf("uninstalled: %t, want %t", got, c.want)
			}
			if openAt(t, t.TempDir(), server.URL, "").Uninstalled(t.Context()) {
				t.Error("an agent of no DaemonSet is uninstalled")
			}
			server.Close()
			if openAt(t, t.TempDir(), server.URL, "agent").Uninstalled(t.Context()) {
				t.Error("uninstalled while the API server is away")
			}
		})
	}
}

// allowedAfter has the first answer n times, and then the other one.
func allowedAfter(n int64, denied, allowed http.HandlerFunc) http.HandlerFunc {
	var queries atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if queries.Add(1) <= n {
			denied(w, r)
		} else {
			allowed(w, r)
		}
	}
}

func openAt(t *testing.T, dir, server, daemonSet string) *kube.Source {
	t.Helper()
	s, err := kube.Open(kube.Options{
		Config: kube.Config{Node: "lb1"}, API: &rest.Config{Host: server}, Namespace: "lb", DaemonSet: daemonSet,
		StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The state that was saved for a next agent is removed.
func TestForget(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lb1")
	s := openAt(t, dir, "", "")
	if err := os.WriteFile(filepath.Join(dir, "state.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}
