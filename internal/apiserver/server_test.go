// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cloud creates a load balancer first, then its parts one by one, and deletes them.
func TestParts(t *testing.T) {
	a := newAPI(t, 1)
	const tls = `{"enabled":true,"name":"tls","port":443,"protocol":"TCP"}`
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string // body of the response
	}{
		{"GET", base, "", 200, `{"items":[]}`},
		{"GET", base + "/lb", "", 404, ""},
		{"PUT", base + "/lb/listeners/http", `{"port":80}`, 404, ""},
		{"DELETE", base + "/lb", "", 404, ""},
		{"PUT", base + "/lb", `{"forward":"nat","labels":{"tier":"front"}}`, 201, `{"forward":"nat","labels":{"tier":"front"},"name":"lb"}`},
		{"PUT", base + "/lb", `{"name":"lb","forward":"gue"}`, 200, `{"forward":"gue","name":"lb"}`},
		{"GET", base + "/lb/listeners", "", 200, `{"items":[]}`},
		{"GET", base + "/lb/listeners/http", "", 404, ""},
		{"PUT", base + "/lb/pools/web/members/192.0.2.1:80", `{}`, 404, ""},
		{"PUT", base + "/lb/pools/web", `{}`, 201, `{"name":"web","sessionAffinity":"None"}`},
		{"PUT", base + "/lb/listeners/http", `{"port":80,"pool":"web"}`, 201, `{"enabled":true,"name":"http","pool":"web","port":80,"protocol":"TCP"}`},
		{"PUT", base + "/lb/listeners/http", `{"port":8080,"pool":"web"}`, 200, `{"enabled":true,"name":"http","pool":"web","port":8080,"protocol":"TCP"}`},
		{"PUT", base + "/lb/listeners/tls", `{"port":443}`, 201, tls},
		{"PUT", base + "/lb/pools/web/healthcheck", `{"type":"tcp"}`, 201, `{"type":"tcp"}`},
		{"PUT", base + "/lb/pools/web/healthcheck", `{"type":"http"}`, 200, `{"type":"http"}`},
		{"GET", base + "/lb/pools/web/healthcheck", "", 200, `{"type":"http"}`},
		{"GET", base + "/lb/pools/web/members", "", 200, `{"items":[]}`},
		{"PUT", base + "/lb/pools/web/members/192.0.2.1:80", `{"weight":0}`, 201, `{"address":"192.0.2.1","port":80,"weight":0}`},
		{"PUT", base + "/lb/pools/web/members/[2001:db8::1]:80", `{"weight":2}`, 201, `{"address":"2001:db8::1","port":80,"weight":2}`},
		{"GET", base + "/lb/pools/web/members/%5B2001:db8::1%5D:80", "", 200, `{"address":"2001:db8::1","port":80,"weight":2}`},
		{"DELETE", base + "/lb/pools/web/members/192.0.2.1:80", "", 204, ""},
		{"DELETE", base + "/lb/pools/web/members/192.0.2.1:80", "", 404, ""},
		{"PUT", base + "/lb/pools/web/members", `{"items":[{"address":"192.0.2.7","port":80}]}`, 200, `{"items":[{"address":"192.0.2.7","port":80,"weight":1}]}`},
		{"DELETE", base + "/lb/pools/web", "", 409, ""},
		{"GET", base + "/lb", "", 200, `{"forward":"gue","listeners":[{"enabled":true,"name":"http","pool":"web","port":8080,"protocol":"TCP"},` + tls + `],"name":"lb",` +
			`"pools":[{"healthCheck":{"type":"http"},"members":[{"address":"192.0.2.7","port":80,"weight":1}],"name":"web","sessionAffinity":"None"}]}`},
		{"DELETE", base + "/lb/listeners/http", "", 204, ""},
		{"GET", base + "/lb/listeners", "", 200, `{"items":[` + tls + `]}`},
		{"DELETE", base + "/lb/pools/web/healthcheck", "", 204, ""},
		{"GET", base + "/lb/pools/web/healthcheck", "", 404, ""},
		{"DELETE", base + "/lb/pools/web", "", 204, ""},
		{"GET", base + "/lb/pools", "", 200, `{"items":[]}`},
		{"GET", base + "/lb/pools/web/members", "", 404, ""},
		{"GET", base + "/lb/status", "", 200, `{"name":"lb","provisioningStatus":"ACTIVE","operatingStatus":"OFFLINE",` +
			`"address":"203.0.113.0","group":"default","listeners":[{"name":"tls","provisioningStatus":"ACTIVE","operatingStatus":"OFFLINE"}],"pools":[]}`},
		{"DELETE", base + "/lb", "", 204, ""},
		{"GET", base + "/lb/status", "", 404, ""},
	} {
		got := a.must(step.status, "web", step.method, step.path, step.body)
		if step.want != "" && got.body != step.want {
			t.Errorf("%s %s: got\n%s, want\n%s", step.method, step.path, got.body, step.want)
		}
	}
	if n := a.count(); n != 0 {
		t.Errorf("%d load balancers are left", n)
	}
}

// A bad request changes nothing, and the answer names the field.
func TestBadRequests(t *testing.T) {
	a := newAPI(t, 1)
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","listeners":[{"name":"a","port":1}],"pools":[{"name":"p"}]}`)
	before := a.must(200, "web", "GET", base+"/lb", "").body
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string // in the body
	}{
		{"PUT", base + "/lb", `{"forward":`, 400, "JSON"},
		{"PUT", base + "/lb", `{"forward":"nat"} {}`, 400, "JSON"},
		{"PUT", base + "/lb", `[]`, 400, "JSON object"},
		{"PUT", base + "/lb", `null`, 400, "JSON object"},
		{"PUT", base + "/lb", `{"forward":"nat","forward":"gue"}`, 400, `"field":"forward"`},
		{"PUT", base + "/lb", `{"listeners":[{"port":1,"port":2}]}`, 400, `"field":"listeners[0].port"`},
		{"PUT", base + "/lb", `{"name":"bl"}`, 422, `"field":"name"`},
		{"PUT", base + "/lb", `{"labels":{"a":1}}`, 422, `"field":"labels.a"`},
		{"PUT", base + "/lb", `{"labels":"a"}`, 422, `"field":"labels"`},
		{"PUT", base + "/lb", `{"listeners":[{"name":"a","port":1},{"name":"b","port":0}]}`, 422, `"field":"listeners[1].port"`},
		{"PUT", base + "/lb", `{"x":"` + strings.Repeat("x", maxBody) + `"}`, 413, "bytes"},
		{"PUT", base + "/lb/listeners/b", `{"port":1,"name":"a"}`, 422, `"field":"name"`},
		{"PUT", base + "/lb/listeners/B", `{"port":1}`, 400, `"field":"listener"`},
		{"PUT", base + "/-", `{}`, 400, `"field":"loadbalancer"`},
		{"PUT", base + "/a%2Fb", `{}`, 400, `"field":"loadbalancer"`},
		{"PUT", base + "/lb/pools/p/members/192.0.2.1", `{}`, 400, `"field":"member"`},
		{"PUT", base + "/lb/pools/p/members/192.0.2.01:1", `{}`, 400, `"field":"member"`},
		{"PUT", base + "/lb/pools/p/members/192.0.2.1:1", `{"port":2}`, 422, `"field":"port"`},
		{"PUT", base + "/lb/pools/p/members", `{"items":{}}`, 422, `"field":"items"`},
		{"PUT", base + "/lb/pools/p/members", `{"member":[]}`, 400, `"field":"member"`},
		{"GET", base + "?limit=0", "", 400, `"field":"limit"`},
		{"GET", base + "?limit=501", "", 400, `"field":"limit"`},
		{"GET", base + "/lb/status?wait=6", "", 400, `"field":"wait"`},
		{"GET", base + "?limit=1&limit=2", "", 400, `"field":"limit"`},
		{"GET", base + "?labelselector=a", "", 400, `"field":"labelselector"`},
		{"GET", base + "?labelSelector=a%3D%3D%3D", "", 400, `"field":"labelSelector"`},
		{"GET", base + "?labelSelector=tier%3D50%", "", 400, "invalid URL escape"},
		{"GET", base + "/lb?limit=1", "", 400, `"field":"limit"`},
		{"POST", base, `{}`, 405, ""},
		{"PATCH", base + "/lb", `{}`, 405, ""},
		{"GET", "/v1/projects//loadbalancers", "", 404, "path"},
		{"GET", "/v1/projects/web/../web/loadbalancers", "", 404, "path"},
		{"GET", base + "/", "", 404, "path"},
		{"GET", "/", "", 404, "path"},
	} {
		got := a.must(test.status, "web", test.method, test.path, test.body)
		if !strings.Contains(got.body, test.want) {
			t.Errorf("%s %s: %s, want %s", test.method, test.path, got.body, test.want)
		}
	}
	a.must(415, "web", "PUT", base+"/lb", `{}`, "Content-Type", "text/plain")
	if got := a.must(405, "web", "POST", base+"/lb", `{}`).header.Get("Allow"); got != "GET, PUT, DELETE" {
		t.Errorf("Allow: %q", got)
	}
	if after := a.must(200, "web", "GET", base+"/lb", "").body; after != before {
		t.Errorf("was\n%s, is\n%s", before, after)
	}
}

// A write with a condition is made if the part is as the client says, whatever happened to others.
func TestConditions(t *testing.T) {
	a := newAPI(t, 1)
	const listener = base + "/lb/listeners/a"
	balancer := a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat"}`, "If-None-Match", "*").header.Get("ETag")
	a.must(412, "web", "PUT", base+"/lb", `{"forward":"gue"}`, "If-None-Match", "*")
	a.must(412, "web", "PUT", listener, `{"port":1}`, "If-Match", "*")
	first := a.must(201, "web", "PUT", listener, `{"port":1}`).header.Get("ETag")
	a.must(304, "web", "GET", listener, "", "If-None-Match", `"x", W/`+first)
	a.must(200, "web", "GET", listener, "", "If-None-Match", `"x"`)
	if got := a.must(200, "web", "GET", listener, "").header.Get("ETag"); got != first {
		a.Errorf("ETag %s when created, %s when read", first, got)
	}
	a.must(412, "web", "PUT", base+"/lb", `{"forward":"gue"}`, "If-Match", balancer) // it has a listener more
	a.must(201, "web", "PUT", base+"/lb/listeners/b", `{"port":2}`)
	second := a.must(200, "web", "PUT", listener, `{"port":3}`, "If-Match", first).header.Get("ETag")
	a.must(412, "web", "PUT", listener, `{"port":3}`, "If-Match", first)
	a.must(412, "web", "DELETE", listener, "", "If-Match", first)
	a.must(412, "web", "DELETE", listener, "", "If-Match", "W/"+second)
	a.must(412, "web", "DELETE", listener, "", "If-Match", "")
	a.must(204, "web", "DELETE", listener, "", "If-Match", `"x", `+second)
	a.must(200, "web", "GET", base+"/lb/listeners/b", "")
	a.must(304, "web", "GET", documentPath, "", "If-None-Match", a.must(200, "web", "GET", documentPath, "").header.Get("ETag"))
}

// While the store doesn't answer, the response is 503, and the client can repeat its request.
func TestStoreUnavailable(t *testing.T) {
	a := newAPI(t, 1)
	away := true
	a.faults.fails = func() (before, after bool) { return away, false }
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		body := ""
		if method == "PUT" {
			body = `{"forward":"nat"}`
		}
		got := a.must(503, "web", method, base+"/lb", body)
		if got.header.Get("Retry-After") == "" || strings.Contains(got.body, errAway.Error()) {
			a.Errorf("%s: Retry-After %q, body %s", method, got.header.Get("Retry-After"), got.body)
		}
	}
	away = false
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat"}`)
	calls := 0
	a.faults.fails = func() (before, after bool) { // the second call, which deletes, is done but not answered
		calls++
		return false, calls == 2
	}
	a.must(503, "web", "DELETE", base+"/lb", "")
	a.faults.fails = nil
	a.must(404, "web", "GET", base+"/lb", "")
}

// A refusal because of this server's account isn't the client's fault, and a webhook's refusal has
// the webhook's reason.
func TestRefusedByCluster(t *testing.T) {
	refusal := func(message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}}
	}
	for _, test := range []struct {
		err    error
		status int
		detail string
	}{
		{apierrors.NewUnauthorized("Unauthorized"), 503, "the store doesn't answer"},
		{apierrors.NewResourceExpired("too old"), 410, "the continue token has expired: list again without it"},
		{refusal(`loadbalancers.fairlead.io is forbidden: User "system:serviceaccount:a:b" cannot list`), 403, "this server has no rights in the namespace of the project"},
		{refusal(`loadbalancers.fairlead.io "lb" is forbidden: exceeded quota: q`), 403, "exceeded quota: q"},
		{refusal(`admission webhook "ports.example.com" denied the request: port 22`), 403, `admission webhook "ports.example.com" denied the request: port 22`},
	} {
		if p := httpErrorOf(test.err); p.Status != test.status || p.Detail != test.detail {
			t.Errorf("%v: %d %q, want %d %q", test.err, p.Status, p.Detail, test.status, test.detail)
		}
	}
}
