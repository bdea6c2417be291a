// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRequest shows that no request to the status page is an error of the server, and that
// answers are JSON.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][3]string{
		{"/"}, {"/metrics"}, {"/api/v1/services", "filter=s1&offset=1&limit=2"}, {"/api/v1/services", "limit=-1"},
		{"/api/v1/backends", "service=s1", "[::1]:80"}, {"/api/v1/history", "service"}, {"/api/v1/events", "offset=99999999999999999999"},
		{"/api/v1/page", "filter=s&sort=name&open=s1&limit=3"}, {"/api/v1/routes", "limit=1;offset=0", "localhost"}, {"/assets/../web.go", "%"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	a := startAgent(f, 3)
	f.Fuzz(func(t *testing.T, path, query, host string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Path, request.URL.RawQuery, request.Host = "/"+strings.TrimPrefix(path, "/"), query, host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return // nothing that HTTP can carry
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode == http.StatusInternalServerError {
			t.Fatalf("%s: %q (%v)", response.Status, answer, err)
		}
		if response.Header.Get("Content-Type") == "application/json" && !json.Valid(answer) {
			t.Errorf("answer %q", answer)
		}
	})
}
