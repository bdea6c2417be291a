// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/apiserver"
	"fairlead.io/fairlead/test/cluster"
)

// project is the namespace of the project web.
const project = "project-web"

// useAPIServer runs an API server for clouds as the chart's account, and sends requests that need
// all of its rights.
func useAPIServer(t *testing.T, api *cluster.API) {
	t.Helper()
	token, entry, err := apiserver.NewToken(apiserver.Token{ID: "cloud", Projects: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(entry.Line()), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	config := api.AsServiceAccount(t, namespace, "fairlead-apiserver")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- apiserver.Run(ctx, config, apiserver.Options{
			Listen: address, Files: apiserver.Files{Tokens: path}, NamespacePrefix: "project-", Rate: 100, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("API server: %v", err)
		}
	}()
	send := func(method, project, path, body string, want int) {
		t.Helper()
		cluster.Await(t, time.Minute, method+" "+path, func() error {
			r, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/v1/projects/"+project+"/loadbalancers"+path, strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != want {
				return fmt.Errorf("status %d, want %d", response.StatusCode, want)
			}
			return nil
		})
	}
	send("PUT", "web", "/lb", `{"forward":"nat"}`, http.StatusCreated)
	send("PUT", "web", "/lb/listeners/http", `{"port":80}`, http.StatusCreated)
	send("GET", "web", "", "", http.StatusOK)
	send("GET", "web", "/lb/status", "", http.StatusOK)
	awaitServed(t, api, "loadbalancer/lb", "{.status.group}", "default", "-n", project)
	send("GET", "web", "/lb/status", "", http.StatusOK)
	send("GET", "web", "/lb/statistics", "", http.StatusOK)
	send("DELETE", "web", "/lb", "", http.StatusNoContent)
}
