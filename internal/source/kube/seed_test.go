// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seedSecret answers a request of the Secret with a seed, "" for none.
func seedSecret(seed string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/lb/secrets/seed" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed"}, "data": {"seed": %q}}`,
			base64.StdEncoding.EncodeToString([]byte(seed)))
	}
}

// The seed is the Secret's, or else the saved one. An agent without either waits.
func TestHashSeed(t *testing.T) {
	t.Parallel()
	const seed, other = uint64(18446744073709551615), uint64(7)
	text := fmt.Sprint(seed)
	unavailable := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		saved  string
		want   uint64
	}{
		"first start":         {seedSecret(text + "\n"), "", seed},
		"written later":       {allowedAfter(2, seedSecret(""), seedSecret(text)), "", seed},
		"Secret made later":   {allowedAfter(2, http.NotFound, seedSecret(text)), "", seed},
		"saved and different": {seedSecret(text), "7", seed},
		"API server down":     {unavailable, text, seed},
		"Secret emptied":      {seedSecret(""), "7", other},
		"bad Secret":          {seedSecret("secret"), "7", other},
		"bad file":            {seedSecret(text), "x", seed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.answer)
			t.Cleanup(server.Close)
			dir := t.TempDir()
			path := filepath.Join(dir, "hash-seed")
			if c.saved != "" {
				if err := os.WriteFile(path, []byte(c.saved), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := openAt(t, dir, server.URL, "").HashSeed(t.Context(), "seed")
			if err != nil || got != c.want {
				t.Errorf("seed %d, %v; want %d", got, err, c.want)
			}
			saved, err := os.ReadFile(path)
			if err != nil || strings.TrimSpace(string(saved)) != fmt.Sprint(c.want) {
				t.Errorf("saved %q, %v; want %d", saved, err, c.want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v: want mode 0600", info, err)
			}
		})
	}
}

// Without a seed an agent waits until it is terminated, and saves nothing.
func TestHashSeedMissing(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	queries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if queries++; queries > 2 {
			stop()
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	if seed, err := openAt(t, dir, server.URL, "").HashSeed(ctx, "seed"); err == nil {
		t.Errorf("seed %d of no Secret", seed)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("saved %v, %v", files, err)
	}
}
