// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// example is a path of a route in the project web.
func example(r *route) string {
	return strings.NewReplacer("{project}", "web", "{loadbalancer}", "lb", "{listener}", "http", "{pool}", "web", "{member}", "192.0.2.1:80", "{node}", "n1").Replace(r.path)
}

// full is a load balancer in which each example is there.
const full = `{"forward":"nat","listeners":[{"name":"http","port":80,"pool":"web"}],` +
	`"pools":[{"name":"web","members":[{"address":"192.0.2.1","port":80}],"healthCheck":{"type":"tcp"}}]}`

// Routes reject clients without credentials and clients of other projects, and the response doesn't
// show whether the resource exists. A read-only client changes nothing. Only nodes have access to
// the routes of nodes, each to its own reports.
func TestIsolation(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { newAPI(t, 1).testIsolation() })
	t.Run("without nodes", func(t *testing.T) { newAPIOf(t, withoutNodes{newEmbedded(t)}, 1).testIsolation() })
}

// withoutNodes is an embedded store that nodes can't follow, as one in Kubernetes.
type withoutNodes struct{ Store }

func (s withoutNodes) count() int { return s.Store.(*embeddedStore).count() }

func (a *api) testIsolation() {
	a.must(201, "web", "PUT", base+"/lb", full)
	before := a.must(200, "web", "GET", base+"/lb", "")
	_, isFollowed := a.store.(followed)
	for _, r := range routes() {
		if !r.nodes && r.shared == strings.Contains(r.path, "{project}") {
			a.Errorf("%s is for clients of all projects: %t", r.path, r.shared)
		}
		method, body := r.method, ""
		if r.stream != nil {
			method = "HEAD" // without an answer that doesn't end
		}
		if r.body != "" {
			body = `{}`
		}
		if r.nodes {
			body = reported
		}
		for client, want := range wanted(&r) {
			if r.nodes && !isFollowed {
				want = 404
			}
			a.servers[0].(*server).failures = newLimits(1, 1, 1) // each failure is the first
			got := a.do(0, client, method, example(&r), body)
			if got.status != want {
				a.Errorf("%s %s by %q: status %d, want %d", r.method, r.path, client, got.status, want)
			}
			if want == 404 && !r.nodes {
				absent := a.do(0, client, r.method, strings.ReplaceAll(strings.ReplaceAll(example(&r), "/lb", "/none"), "/web/", "/none/"), "")
				if absent.body != got.body {
					a.Errorf("%s %s: foreign projects answer %s, absent ones %s", r.method, r.path, got.body, absent.body)
				}
			}
		}
	}
	if after := a.must(200, "web", "GET", base+"/lb", ""); after.body != before.body || a.count() != 1 {
		a.Errorf("was\n%s, is\n%s", before.body, after.body)
	}
}

// reported is a node's report of its status and counters: unknown fields are ignored.
const reported = `{"reported":"2026-01-01T00:00:01Z","version":"1","dataPlane":"xdp","draining":false,"started":"2026-01-01T00:00:00Z",` +
	`"services":{"total":1,"programmed":1,"failed":0,"panic":0,"drained":0},"backends":{"total":1,"inUse":1,"unhealthy":0,"drained":0},` +
	`"routes":{"announced":1,"withheld":0,"sessions":1}}`

// wanted returns the status codes of clients of a route.
func wanted(r *route) map[string]int {
	switch {
	case r.nodes:
		all := map[string]int{"": 401, "old": 401, "other": 403, "web": 403, "all": 403, "reader": 403, "node": r.successes[0], "node4": 403}
		if r.path == watchPath {
			all["node4"] = 200
		}
		return all
	case r.shared:
		return map[string]int{"": 401, "old": 401, "other": 200, "reader": 200, "node": 403}
	case r.writes():
		return map[string]int{"": 401, "old": 401, "other": 404, "reader": 403, "node": 403}
	}
	return map[string]int{"": 401, "old": 401, "other": 404, "reader": 200, "node": 403}
}

// A name of a project leads into no other namespace.
func TestProjectNames(t *testing.T) {
	a := newAPI(t, 1)
	for _, project := range []string{"..", "%2e%2e", "a%2Fb", "a%00", "A", "-", "*", "%2A", "kube-system%2F..", strings.Repeat("a", 64)} {
		if got := a.do(0, "all", "PUT", "/v1/projects/"+project+"/loadbalancers/lb", `{"forward":"nat"}`).status; got != 404 {
			a.Errorf("%s: status %d", project, got)
		}
	}
	a.must(201, "all", "PUT", "/v1/projects/any/loadbalancers/lb", `{"forward":"nat"}`)
	a.must(200, "all", "GET", "/v1/projects/any/loadbalancers/lb", "")
	if a.count() != 1 {
		a.Error("objects in other projects")
	}
}

// Requests of a client have a limit, and failures of an address, which valid tokens don't notice.
func TestLimits(t *testing.T) {
	a := newAPI(t, 1)
	s := a.servers[0].(*server)
	for i := range failureBurst + 1 {
		want := 401
		if i == failureBurst {
			want = 429
		}
		if got := a.must(want, "", "GET", base, ""); want == 429 && got.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
		}
	}
	a.must(200, "web", "GET", base, "")
	s.requests = newLimits(1, 2, maxClients)
	for _, want := range []int{200, 200, 429} {
		a.must(want, "web", "GET", base, "")
	}
	a.must(200, "reader", "GET", base, "")
}

// The number of limits is bounded, and limits that are full again make room.
func TestLimitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(1, 1, 2)
		take := func(key string) bool { return l.take(key, time.Now()) == 0 }
		if !take("a") || !take("b") || take("a") || !take("c") || take("d") || len(l.own) != 2 {
			t.Error("others than a and b don't share a limit")
		}
		time.Sleep(sweepInterval)
		if !take("c") || !take("d") || take("c") || len(l.own) != 2 {
			t.Error("c and d have no limits of their own")
		}
	})
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8::1:2]:80": "2001:db8::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "@",
	} {
		if got := clientKey(remote); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// Each write has a line in the log, also one that is refused. No line has a token or a body.
func TestAuditLog(t *testing.T) {
	a := newAPI(t, 1)
	var log strings.Builder
	a.servers[0].(*server).log = slog.New(slog.NewJSONHandler(&log, nil))
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","labels":{"a":"secret"}}`)
	a.must(200, "web", "GET", base+"/lb", "")
	a.must(404, "other", "DELETE", base+"/lb", "")
	a.must(403, "reader", "PUT", base+"/lb/listeners/http", `{}`)
	a.must(401, "", "PUT", base+"/lb", `{}`)
	var got []string
	for line := range strings.Lines(log.String()) {
		var entry struct {
			Msg, Client, Project, Method, Object string
			Status                               int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join(strings.Fields(fmt.Sprintln(entry.Msg, entry.Client, entry.Project, entry.Method, entry.Object, entry.Status)), " "))
	}
	want := []string{
		"write token web web PUT loadbalancers/lb 201", "write token other web DELETE loadbalancers/lb 404",
		"write token reader web PUT loadbalancers/lb/listeners/http 403", "authentication failed 0",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(log.String(), "secret") || strings.Contains(log.String(), a.tokens["web"]) {
		t.Errorf("the log has a body or a token:\n%s", &log)
	}
}
