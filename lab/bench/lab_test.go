// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestClient checks that a request is repeated when there were too many, and that others fail.
func TestClient(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Authorization"), body))
		switch {
		case len(requests) == 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Method == http.MethodDelete:
			http.Error(w, "no such load balancer", http.StatusNotFound)
		default:
			fmt.Fprint(w, "made")
		}
	}))
	defer server.Close()
	c := Client{HTTP: *server.Client(), Base: server.URL + "/", Token: "secret"}
	answer, err := c.Do(t.Context(), http.MethodPut, "a", map[string]int{"n": 1})
	const want = `PUT /a Bearer secret {"n":1}`
	if err != nil || string(answer) != "made" || strings.Join(requests, "; ") != want+"; "+want {
		t.Errorf("answer %q, error %v after %q", answer, err, requests)
	}
	if _, err := c.Do(t.Context(), http.MethodDelete, "b", nil); err == nil || !strings.Contains(err.Error(), "DELETE b: status 404 Not Found: no such load balancer") {
		t.Errorf("error %v", err)
	}
}
