// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzRequest shows that no request to an agent's socket is an error of the server, and that
// answers are JSON.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][4]string{
		{"GET", "/v1/status"}, {"GET", "/v1/services", "service=web"}, {"GET", "/v1/backends", "service=x"},
		{"GET", "/v1/flows", "service=web&client=10.0.0.0/8&limit=10"}, {"GET", "/v1/flows", "client=10.0.0.0/99&limit=0"},
		{"GET", "/v1/top", "limit=100001"}, {"GET", "/v1/drains"}, {"GET", "/v1/routes"},
		{"POST", "/v1/trace", "", `{"packets": [{"interface": "eth0", "frame": "AAAA"}, {}]}`}, {"POST", "/v1/trace", "", `{"packets": [`},
		{"POST", "/v1/drain", "", `{"service": "web", "backend": "10.0.0.21:80"}`}, {"POST", "/v1/drain", "", `{"service": "web"} {`},
		{"POST", "/v1/undrain", "", `{"service": "web"}`}, {"POST", "/v1/undrain", "", `{}`}, {"POST", "/v1/reload"}, {"PUT", "/v1/../x", ";"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	a := startAgent(f)
	client := a.http()
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://agent/", strings.NewReader(body))
		if err != nil {
			return
		}
		request.URL = &url.URL{Scheme: "http", Host: "agent", Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query}
		response, err := client.Do(request)
		if err != nil {
			return // nothing that HTTP can carry
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode >= http.StatusInternalServerError {
			t.Fatalf("%s: %q (%v)", response.Status, answer, err)
		}
		if response.Header.Get("Content-Type") == "application/json" && !json.Valid(answer) {
			t.Errorf("answer %q", answer)
		}
	})
}
