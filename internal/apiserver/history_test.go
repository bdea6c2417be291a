// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.io/fairlead/test/fuzzrand"
)

// model is the expected state of load balancers: parts by path below base. The removal of a part
// removes the parts that belong to it.
type model map[string]string

func (m model) remove(path string) {
	maps.DeleteFunc(m, func(p, _ string) bool { return p == path || strings.HasPrefix(p, path+"/") })
}

// parts are the paths of random histories, and the field that each has in addition to its name.
var parts = []string{
	"/a", "/b", "/a/listeners/l", "/a/listeners/m", "/b/listeners/l", "/a/pools/p", "/b/pools/p",
	"/a/pools/p/members/192.0.2.1:1", "/a/pools/p/members/192.0.2.2:1", "/b/pools/p/members/192.0.2.1:1", "/a/pools/p/healthcheck",
}

// request is one of a random history.
type request struct {
	method, path, body string
	headers            []string
}

func randomRequest(r *rand.Rand, path string) request {
	if r.IntN(4) == 0 {
		return request{method: "DELETE", path: path}
	}
	// No two listeners have the same port.
	body := fmt.Sprintf(`{"port":%d}`, 256*(1+r.IntN(3))+int(path[len(path)-1]))
	switch {
	case !strings.Contains(path[1:], "/"):
		body = fmt.Sprintf(`{"forward":"nat","firewallMark":%d}`, 1+r.IntN(3))
	case strings.Contains(path, "/members/"):
		body = fmt.Sprintf(`{"weight":%d}`, r.IntN(3))
	case strings.HasSuffix(path, "healthcheck"):
		body = fmt.Sprintf(`{"type":"tcp","rise":%d}`, 1+r.IntN(3))
	case strings.Contains(path, "/pools/"):
		body = fmt.Sprintf(`{"minHealthy":%d}`, 1+r.IntN(3))
	}
	return request{method: "PUT", path: path, body: body}
}

// parent returns the path of the part that a part belongs to; "" for load balancers.
func parent(path string) string {
	elements := strings.Split(path, "/")
	switch {
	case len(elements) == 2:
		return ""
	case elements[len(elements)-1] == "healthcheck":
		return strings.Join(elements[:len(elements)-1], "/")
	}
	return strings.Join(elements[:len(elements)-2], "/")
}

// apply returns the status code that a request has to have, and changes the model.
func (m model) apply(q request) int {
	_, there := m[q.path]
	if p := parent(q.path); p != "" {
		if _, found := m[p]; !found {
			return 404
		}
	}
	switch {
	case q.method == "DELETE" && !there:
		return 404
	case q.method == "DELETE":
		m.remove(q.path)
		return 204
	}
	m.remove(q.path) // a body without parts has none
	m[q.path] = q.body
	if there {
		return 200
	}
	return 201
}

// check compares all parts with the model.
func (m model) check(a *api) {
	a.Helper()
	for _, path := range parts {
		want, there := m[path]
		got := a.do(0, "web", "GET", base+path, "")
		if !there {
			if got.status != 404 {
				a.Errorf("%s is there: %s", path, got.body)
			}
			continue
		}
		var fields, given map[string]any
		if json.Unmarshal([]byte(got.body), &fields) != nil || json.Unmarshal([]byte(want), &given) != nil || got.status != 200 {
			a.Errorf("%s: status %d, body %s", path, got.status, got.body)
		}
		for key, v := range given {
			if fields[key] != v {
				a.Errorf("%s is %s, want %s", path, got.body, want)
			}
		}
	}
}

// Random requests to two servers over one store have the same results as on a model. Some are sent
// twice, some again much later with the tag of the first time. Some fail before or after the
// store's write, and are repeated.
func TestRequestsMatchModel(t *testing.T) {
	a := newAPI(t, 2)
	r := rand.New(rand.NewPCG(fuzzrand.Seed(a.TB), 0))
	m := model{}
	var late []request
	const steps = 1500
	for range steps {
		q := randomRequest(r, parts[r.IntN(len(parts))])
		if r.IntN(5) == 0 && len(late) > 0 {
			q = late[r.IntN(len(late))]
		}
		want := 0
		if tag := a.do(r.IntN(2), "web", "GET", base+q.path, "").header.Get("ETag"); len(q.headers) > 0 && q.headers[1] != tag {
			want = 412
			if p := parent(q.path); tag == "" && (q.method == "DELETE" || p != "" && m[p] == "") {
				want = 404
			}
		} else {
			if tag != "" && len(q.headers) == 0 {
				again := q
				again.headers = []string{"If-Match", tag}
				late = append(late, again)
			}
			want = m.apply(q)
		}
		failure := r.IntN(20)
		calls := r.IntN(3)
		a.faults.fails = func() (before, after bool) {
			calls--
			return failure == 0 && calls == 0, failure == 1 && calls == 0
		}
		got := a.do(r.IntN(2), "web", q.method, base+q.path, q.body, q.headers...)
		a.faults.fails = nil
		if got.status == 503 {
			// The client doesn't know whether it was done.
			got = a.do(r.IntN(2), "web", q.method, base+q.path, q.body, q.headers...)
			if done := []int{200, 412, 404}; want < 300 && slices.Contains(done, got.status) {
				want = got.status
			}
		}
		if got.status != want {
			a.Fatalf("%+v: status %d, want %d: %s", q, got.status, want, got.body)
		}
		if q.method == "PUT" && want < 300 && r.IntN(3) == 0 {
			if again := a.do(r.IntN(2), "web", q.method, base+q.path, q.body); again.status != 200 {
				a.Fatalf("%+v again: status %d", q, again.status)
			}
		}
	}
	fuzzrand.Covered(t, 1, steps)
	m.check(a)
	for _, path := range []string{"/a", "/b"} {
		a.do(0, "web", "DELETE", base+path, "")
	}
	if n := a.count(); n != 0 {
		a.Errorf("%d load balancers are left", n)
	}
}

// Clients change different parts of a load balancer at the same time, through two servers, while
// another one is created and deleted all the time: no change is lost, and nothing is left.
func TestConcurrent(t *testing.T) {
	a := newAPI(t, 2)
	seed := fuzzrand.Seed(a.TB)
	a.must(201, "web", "PUT", base+"/a", `{"forward":"nat","pools":[{"name":"p"}]}`)
	var clients sync.WaitGroup
	const steps = 30
	finals := make([]model, 6)
	for i := range finals {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			m := model{"/a": "{}", "/a/pools/p": "{}"}
			for range steps {
				own := []string{fmt.Sprintf("/a/listeners/l%d", i), fmt.Sprintf("/a/pools/p/members/192.0.2.%d:1", i)}
				q := randomRequest(r, own[r.IntN(2)])
				want := m.apply(q)
				if got := a.do(r.IntN(2), "web", q.method, base+q.path, q.body); got.status != want && got.status != 409 {
					a.Errorf("%+v: status %d, want %d", q, got.status, want)
				} else if got.status == 409 {
					a.Errorf("%+v: too many conflicts", q)
				}
				// The other one comes and goes.
				q = randomRequest(r, []string{"/b", "/b/listeners/l", "/b/pools/p"}[r.IntN(3)])
				if got := a.do(r.IntN(2), "web", q.method, base+q.path, q.body).status; got >= 300 && got != 404 && got != 409 {
					a.Errorf("%+v: status %d", q, got)
				}
			}
			finals[i] = m
		})
	}
	clients.Wait()
	fuzzrand.Covered(t, len(finals), len(finals)*steps)
	for _, m := range finals {
		for _, path := range slices.Sorted(maps.Keys(m)) {
			if got := a.do(0, "web", "GET", base+path, ""); got.status != 200 {
				a.Errorf("%s: status %d", path, got.status)
			}
		}
	}
	listeners := a.must(200, "web", "GET", base+"/a/listeners", "").body
	want := 0
	for i, m := range finals {
		if _, there := m[fmt.Sprintf("/a/listeners/l%d", i)]; there {
			want++
		}
	}
	if got := strings.Count(listeners, `"name"`); got != want {
		a.Errorf("%d listeners, want %d: %s", got, want, listeners)
	}
	a.do(0, "web", "DELETE", base+"/b", "")
	a.must(204, "web", "DELETE", base+"/a", "")
	if n := a.count(); n != 0 {
		a.Errorf("%d load balancers are left", n)
	}
}
