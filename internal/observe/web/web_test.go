// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/await"
)

func TestPaths(t *testing.T) {
	a := startAgent(t, 3)
	for path, want := range map[string]struct {
		status    int
		mime, has string
	}{
		"/":                                 {200, "text/html; charset=utf-8", "<title>Fairlead</title>"},
		"/assets/app.js":                    {200, "text/javascript; charset=utf-8", "polls"},
		"/assets/style.css":                 {200, "text/css; charset=utf-8", ":root"},
		"/assets/icon.svg":                  {200, "image/svg+xml", "<svg"},
		"/metrics":                          {200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "fairlead_build_info{"},
		"/healthz":                          {200, "text/plain; charset=utf-8", "ok"},
		"/readyz":                           {200, "text/plain; charset=utf-8", "ok"},
		"/api/v1/status":                    {200, "application/json", `"node":"lb1"`},
		"/api/v1/services":                  {200, "application/json", `"name":"s2"`},
		"/api/v1/services?filter=S1":        {200, "application/json", `"name":"s1"`},
		"/api/v1/services?filter=none":      {200, "application/json", `[]`},
		"/api/v1/services?limit=1&offset=2": {200, "application/json", `"name":"s2"`},
		"/api/v1/backends?service=s1":       {200, "application/json", `"address":"10.0.0.22"`},
		"/api/v1/routes":                    {200, "application/json", `{"enabled":false,"announcements":[],"peers":[]}`},
		"/api/v1/routes?limit=0":            {400, "text/plain; charset=utf-8", "want 1 to 1000"},
		"/api/v1/history":                   {200, "application/json", `"packetsPerSecond":[null,`},
		"/api/v1/history?service=s1":        {200, "application/json", `"packetsPerSecond":`},
		"/api/v1/events":                    {200, "application/json", `[]`},
		"/api/v1/services?limit=0":          {400, "text/plain; charset=utf-8", "want 1 to 1000"},
		"/api/v1/services?limit=1001":       {400, "text/plain; charset=utf-8", "want 1 to 1000"},
		"/api/v1/services?offset=4":         {400, "text/plain; charset=utf-8", "want 0 to 3"},
		"/api/v1/backends":                  {404, "text/plain; charset=utf-8", `service ""`},
		"/api/v1/backends?service=x":        {404, "text/plain; charset=utf-8", `service "x"`},
		"/api/v1/history?service=x":         {404, "text/plain; charset=utf-8", `service "x"`},
		"/api/v1/page?limit=x":              {400, "text/plain; charset=utf-8", "limit"},
		"/api/v1/page?filter=" + strings.Repeat("x", 201): {400, "text/plain; charset=utf-8", "filter"},
		"/api/v1/page?" + strings.Repeat("open=x&", 17):   {400, "text/plain; charset=utf-8", "open"},
		"/x":                   {404, "text/plain; charset=utf-8", "not found"},
		"/assets/":             {404, "text/plain; charset=utf-8", "not found"},
		"/assets/..%2fweb.go":  {404, "text/plain; charset=utf-8", "not found"},
		"/assets/index.html":   {404, "text/plain; charset=utf-8", "not found"},
		"/api/v1/":             {404, "text/plain; charset=utf-8", "not found"},
		"/debug/pprof/profile": {404, "text/plain; charset=utf-8", "not found"},
	} {
		response, body := a.get(path)
		if response.StatusCode != want.status || response.Header.Get("Content-Type") != want.mime || !strings.Contains(body, want.has) {
			t.Errorf("%.40s: status %d, %s, %.100q: want %d, %s, %q", path, response.StatusCode,
				response.Header.Get("Content-Type"), body, want.status, want.mime, want.has)
		}
		for name, value := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"} {
			if response.Header.Get(name) != value {
				t.Errorf("%.40s: %s is %q, want %q", path, name, response.Header.Get(name), value)
			}
		}
		if !strings.HasPrefix(response.Header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%.40s: no policy for browsers", path)
		}
	}
}

func TestLists(t *testing.T) {
	a := startAgent(t, 3)
	response, body := a.get("/api/v1/services?limit=2&offset=1")
	var services []observe.Service
	if err := json.Unmarshal([]byte(body), &services); err != nil {
		t.Fatal(err)
	}
	if len(services) != 2 || services[0].Name != "s1" || response.Header.Get("X-Total-Count") != "3" {
		t.Errorf("services %+v of %s, want s1 and s2 of 3", services, response.Header.Get("X-Total-Count"))
	}
	a.events.Add(observe.Event{Kind: "health", Object: "s1 10.0.0.21:80", Reason: "unhealthy: refused"})
	a.events.Add(observe.Event{Kind: "drain", Object: "s1 10.0.0.22:80"})
	var events []observe.Event
	if _, body := a.get("/api/v1/events?limit=1"); json.Unmarshal([]byte(body), &events) != nil || len(events) != 1 || events[0].Kind != "drain" {
		t.Errorf("events %s, want the latest", body)
	}
}

// Announcements are served in parts, as there may be a route for each VIP.
func TestRoutes(t *testing.T) {
	a := startAgent(t, 1)
	a.Announced.Store(announcing(3, 1))
	await.True(t, "the routes are read", func() bool {
		_, body := a.get("/api/v1/routes")
		return strings.Contains(body, `"enabled":true`)
	})
	response, body := a.get("/api/v1/routes?offset=1&limit=1")
	var routes observe.Routes
	if err := json.Unmarshal([]byte(body), &routes); err != nil {
		t.Fatal(err)
	}
	if a := routes.Announcements; len(a) != 1 || a[0].Prefix.String() != "10.1.0.1/32" || response.Header.Get("X-Total-Count") != "3" {
		t.Errorf("announcements %+v of %s, want the second of 3", a, response.Header.Get("X-Total-Count"))
	}
	if p := routes.Peers; len(p) != 1 || p[0].State != "established" {
		t.Errorf("peers %+v, want one", p)
	}
}

// Nothing but GET is answered, at any path.
func TestMethods(t *testing.T) {
	a := startAgent(t, 1)
	for _, method := range []string{"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"} {
		for _, path := range []string{"/", "/assets/app.js", "/metrics", "/healthz", "/readyz", "/api/v1/status", "/api/v1/page", "/x"} {
			request := a.request(method, path, http.NoBody)
			if response, _ := a.do(request); response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != "GET" {
				t.Errorf("%s %s: status %d, allowed is %q", method, path, response.StatusCode, response.Header.Get("Allow"))
			}
		}
	}
	request := a.request(http.MethodGet, "/", strings.NewReader("x"))
	if response, _ := a.do(request); response.StatusCode != http.StatusBadRequest {
		t.Errorf("GET with a body: status %d, want 400", response.StatusCode)
	}
}

// A page from elsewhere can't make a browser read this one by a name of its own.
func TestHostHeader(t *testing.T) {
	a := startAgent(t, 1)
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:9571": 200, "[::1]:9571": 200, "localhost": 200, "LocalHost:9571": 200,
		"evil.example": 421, "evil.example:9571": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
	} {
		request := a.request(http.MethodGet, "/api/v1/status", http.NoBody)
		request.Host = host
		if response, body := a.do(request); response.StatusCode != want {
			t.Errorf("host %s: status %d, want %d: %s", host, response.StatusCode, want, body)
		}
	}
}

func TestReadiness(t *testing.T) {
	a := startAgent(t, 1)
	why := errors.New("draining")
	a.unready.Store(&why)
	if response, body := a.get("/readyz"); response.StatusCode != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("status %d, %q", response.StatusCode, body)
	}
	if response, _ := a.get("/healthz"); response.StatusCode != http.StatusOK {
		t.Errorf("a draining agent lives, but has status %d", response.StatusCode)
	}
}

// The page is asked for again only if another agent has another one.
func TestAssetETag(t *testing.T) {
	a := startAgent(t, 1)
	response, _ := a.get("/assets/app.js")
	request := a.request(http.MethodGet, "/assets/app.js", http.NoBody)
	request.Header.Set("If-None-Match", response.Header.Get("ETag"))
	if response, body := a.do(request); response.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("status %d, %d bytes", response.StatusCode, len(body))
	}
}

// reference matches the addresses of the files that a file loads.
var reference = regexp.MustCompile(`(?:src="|href="|from ")((?:/assets|\.)/[a-z.]+)"`)

// The server has all files that the page loads, and none come from another one.
func TestPageSelfContained(t *testing.T) {
	a := startAgent(t, 1)
	waiting, seen := []string{"/"}, []string{}
	for len(waiting) > 0 {
		path := waiting[0]
		waiting = waiting[1:]
		if slices.Contains(seen, path) {
			continue
		}
		seen = append(seen, path)
		response, body := a.get(path)
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, response.StatusCode)
		}
		if path == "/assets/icon.svg" {
			continue // names its language
		}
		for _, elsewhere := range []string{"https://", "url(", "innerHTML", "insertAdjacentHTML", "eval(", " style=", " onclick="} {
			if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), elsewhere) {
				t.Errorf("%s has %q", path, elsewhere)
			}
		}
		for _, match := range reference.FindAllStringSubmatch(body, -1) {
			waiting = append(waiting, strings.Replace(match[1], "./", "/assets/", 1))
		}
	}
	if len(seen) < 9 {
		t.Errorf("the page consists of %q: want more", seen)
	}
}
