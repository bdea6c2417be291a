// SPDX-License-Identifier: Apache-2.0

package review_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/httpd/review"
)

// judge is an API server: it knows the tokens "prometheus", whose user may get /metrics, and
// "other", whose user may get all that is under /api, and fails for the token "broken".
func judge(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var verdict any
	body, _ := io.ReadAll(r.Body)
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		var asked authenticationv1.TokenReview
		if json.Unmarshal(body, &asked) != nil || asked.Spec.Token == "broken" {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		asked.Status.User.Username = asked.Spec.Token
		asked.Status.Authenticated = asked.Spec.Token == "prometheus" || asked.Spec.Token == "other"
		verdict = asked
	} else {
		var asked authorizationv1.SubjectAccessReview
		if json.Unmarshal(body, &asked) != nil || asked.Spec.NonResourceAttributes == nil {
			http.Error(w, "bad review", http.StatusBadRequest)
			return
		}
		asked.Status.Allowed = asked.Spec.User == "prometheus" && asked.Spec.NonResourceAttributes.Path == "/metrics" ||
			strings.HasPrefix(asked.Spec.NonResourceAttributes.Path, "/api/")
		verdict = asked
	}
	text, _ := json.Marshal(verdict)
	_, _ = w.Write(text)
}

// Only requests that the API server allows reach the handler, and those for open paths; all over
// TLS.
func TestRequire(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(judge))
	defer api.Close()
	reviewer, err := review.New(&rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	secure, err := review.TLS()
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewUnstartedServer(reviewer.Require(handler, slog.New(slog.NewTextHandler(log, nil)), "/healthz"))
	server.Listener = tls.NewListener(server.Listener, secure)
	server.Start()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, test := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", http.StatusUnauthorized},
		{"/metrics", "Bearer ", http.StatusUnauthorized},
		{"/metrics", "Basic Z29vZDo=", http.StatusUnauthorized},
		{"/metrics", "Bearer nonsense", http.StatusUnauthorized},
		{"/metrics", "Bearer broken", http.StatusInternalServerError},
		{"/metrics", "Bearer broken", http.StatusInternalServerError}, // reported once
		{"/metrics", "Bearer other", http.StatusForbidden},
		{"/api/v1/status", "Bearer other", http.StatusForbidden},
		{"/metrics", "Bearer prometheus", http.StatusOK},
		{"/api/v1/status", "Bearer prometheus", http.StatusOK},
		{"/healthz/../metrics", "", http.StatusUnauthorized},
		{"/healthz", "", http.StatusOK},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+server.Listener.Addr().String()+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", test.authorization)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s with %q: status %d, want %d", test.path, test.authorization, response.StatusCode, test.want)
		}
	}
	client.CloseIdleConnections()
	server.Close()
	if text := log.String(); strings.Count(text, "path=/metrics") != 1 || strings.Contains(text, "broken") {
		t.Errorf("the log hasn't one report of the failed reviews, or has the token: %q", text)
	}
}
