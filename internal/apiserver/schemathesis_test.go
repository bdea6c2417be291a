// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fairlead.io/fairlead/internal/httpd"
)

// statusCounts counts the responses of a handler by route and status code. It passes few requests with
// If-Match, of which schemathesis doesn't know the value: most would fail whatever their bodies are.
type statusCounts struct {
	http.Handler
	mu       sync.Mutex
	of       map[string]map[int]int
	requests atomic.Int64
}

// ServeHTTP implements http.Handler.
func (c *statusCounts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	recorded := &statusRecorder{w, http.StatusOK, cancel}
	if r = r.WithContext(ctx); c.requests.Add(1)%8 > 0 {
		r.Header.Del("If-Match")
	}
	c.Handler.ServeHTTP(recorded, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[r.Pattern] == nil {
		c.of[r.Pattern] = map[int]int{}
	}
	c.of[r.Pattern][recorded.status]++
}

// statusRecorder records the status code of a response. It ends a stream after the first lines, as
// schemathesis reads whole responses.
type statusRecorder struct {
	http.ResponseWriter
	status int
	end    context.CancelFunc
}

// WriteHeader implements http.ResponseWriter.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// FlushError is for http.ResponseController.
func (s *statusRecorder) FlushError() error {
	defer s.end()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// checkSuccesses checks that each route whose path matches had a success.
func (c *statusCounts) checkSuccesses(t *testing.T, paths *regexp.Regexp) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range routes() {
		if !paths.MatchString(r.path) {
			continue
		}
		codes := c.of[r.method+" "+r.path]
		t.Logf("%s %s: responses by status code: %v", r.method, r.path, codes)
		if codes[http.StatusOK]+codes[http.StatusCreated]+codes[http.StatusNoContent] == 0 {
			t.Errorf("%s %s: no success", r.method, r.path)
		}
	}
}

// listenAndServe serves HTTP as the API server does until the test ends, and returns the URL.
func listenAndServe(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := httpd.Server{Name: "API", Handler: handler, Connections: connections, Log: slog.New(slog.DiscardHandler)}
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// schemathesis runs schemathesis against the routes of a server whose path matches. Its report is
// the error of the test if a response isn't as the document says, or is 5xx.
func schemathesis(t *testing.T, url, paths, token string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(cache, "fairlead", "schemathesis", "bin", "schemathesis")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: scripts/install-deps.sh test-all installs it", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	seed := "1" // constant, so that a failure has its cause in a change
	if other, ok := os.LookupEnv("FAIRLEAD_SEED"); ok {
		seed = other
	}
	cmd := exec.CommandContext(t.Context(), program, "--config-file", filepath.Join(here, "testdata/schemathesis.toml"),
		"run", filepath.Join(here, "openapi.json"), "--url", url, "--include-path-regex", paths, "--seed", seed, "--no-color",
		"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "FAIRLEAD_TOKEN="+token)
	output, err := cmd.CombinedOutput()
	report := string(output)
	if i := strings.Index(report, "= FAILURES ="); i >= 0 {
		report = report[i:]
	}
	if err != nil {
		t.Errorf("FAIRLEAD_SEED=%s: %v\n%.8000s", seed, err, report)
	}
}

// Requests that schemathesis makes from the document, valid and invalid ones, get responses that
// are in the document, and none is 5xx. The load balancers of requests for parts always exist.
func TestSchemathesis(t *testing.T) {
	tests := []struct{ name, client, paths string }{
		{"balancers", "web", `(openapi\.json|loadbalancers|{loadbalancer}|/status(es)?|{loadbalancer}/statistics)$`},
		{"parts", "web", `/(listeners|pools)(/{(listener|pool)})?$`},
		{"members", "web", `{pool}/`},
		{"nodes", "node", `^/v1/(nodes|watch)`},
	}
	var all []string
	for _, test := range tests {
		all = append(all, test.paths)
		t.Run(test.name, func(t *testing.T) {
			a := newAPI(t, 1)
			a.must(http.StatusCreated, "web", http.MethodPut, base+"/0", `{"forward":"nat","listeners":[{"name":"0","port":80}],`+
				`"pools":[{"name":"0","members":[{"address":"192.0.2.1","port":80}],"healthCheck":{"type":"tcp"}}]}`)
			counted := &statusCounts{Handler: a.servers[0], of: map[string]map[int]int{}}
			schemathesis(t, listenAndServe(t, counted), test.paths, a.tokens[test.client])
			counted.checkSuccesses(t, regexp.MustCompile(test.paths))
		})
	}
	tried := regexp.MustCompile(strings.Join(all, "|"))
	for _, r := range routes() {
		if !tried.MatchString(r.path) {
			t.Errorf("%s: no requests", r.path)
		}
	}
}
