// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/fuzzrand"
)

// Client libraries log to the process, which can't say whose test it was.
func TestMain(m *testing.M) {
	if path := os.Getenv(writerData); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path))
		os.Exit(1)
	}
	if folder := os.Getenv(serverFiles); folder != "" {
		fmt.Fprintln(os.Stderr, serveFiles(folder))
		os.Exit(1)
	}
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestAPIServerStore has two servers keep load balancers in a real cluster.
func TestAPIServerStore(t *testing.T) {
	t.Parallel()
	kubernetes := cluster.StartAPI(t)
	if err := kubernetes.Define(t.Context(), "../../deploy/helm/fairlead/crds"); err != nil {
		t.Fatal(err)
	}
	kubernetes.Kubectl(t, "create", "namespace", "project-web")
	store, err := newKubernetesStore(kubernetes.Config(), "project-", "default")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	a := newAPIOf(t, store, 2)
	a.testValidating(t)
	t.Run("no namespace", func(t *testing.T) {
		a.in(t).must(404, "all", "PUT", "/v1/projects/none/loadbalancers/lb", `{"forward":"nat"}`)
	})
	a.testStatus(store, kubernetes)
	t.Run("statuses", func(t *testing.T) { a.in(t).testStatuses(kubernetes) })
	t.Run("owners", func(t *testing.T) { a.in(t).testOwners(kubernetes) })
	t.Run("outage", func(t *testing.T) { a.in(t).testOutage(kubernetes) })
}

// Changes of load balancers and reports reach those who follow the statuses, and a Lease has their holder.
func (a *api) testStatuses(kubernetes *cluster.API) {
	f := followStatuses(a, "web", "holder=a&wait=5")
	f.await(`"name":"lb"`, `"generation":"`, `"packets":20`, `"message":"n1: refused"`)
	kubernetes.Kubectl(a, "create", "namespace", "else")
	for _, namespace := range []string{"else", "project-web"} {
		kubernetes.Apply(a, `{apiVersion: fairlead.io/v1alpha1, kind: LoadBalancer, metadata: {name: applied, namespace: `+namespace+`}, spec: {forward: nat}}`)
	}
	f.await(`"project":"web","name":"applied"`)
	kubernetes.Kubectl(a, "patch", "balancernode", "n1", "--type=merge", "-p", `{"status":{"unhealthy":[],"backends":{"unhealthy":0}}}`)
	f.await(`"name":"192.0.2.1:80","provisioningStatus":"PENDING_CREATE","operatingStatus":"ONLINE"`)
	a.must(204, "web", "DELETE", base+"/applied", "")
	f.await(`"name":"applied","deleted":true`)
	if got := a.do(1, "web", "GET", statusesPath+"?holder=b", ""); got.status != 409 || got.header.Get("Retry-After") == "" {
		a.Errorf("another holder: status %d, Retry-After %q", got.status, got.header.Get("Retry-After"))
	}
	if got := kubernetes.Kubectl(a, "get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}"); got != "a" {
		a.Errorf("holders %q", got)
	}
}

// Kubernetes keeps the owners of fields of objects that clients apply, and of no others.
func (a *api) testOwners(kubernetes *cluster.API) {
	const name = "owners"
	owners := func() string {
		a.Helper()
		return kubernetes.Kubectl(a, "get", "-n", "project-web", "loadbalancers.fairlead.io", name, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].operation}")
	}
	a.must(201, "web", "PUT", base+"/"+name, `{"forward":"nat"}`)
	a.must(201, "web", "PUT", base+"/"+name+"/pools/p", `{}`)
	if got := owners(); got != "" {
		a.Errorf("owners %q of an object that no client has applied", got)
	}
	path := filepath.Join(a.TempDir(), "applied.yaml")
	applied := "apiVersion: fairlead.io/v1alpha1\nkind: LoadBalancer\nmetadata: {name: owners, namespace: project-web}\nspec: {forward: nat}\n"
	if err := os.WriteFile(path, []byte(applied), 0o600); err != nil {
		a.Fatal(err)
	}
	kubernetes.Kubectl(a, "apply", "--server-side", "-f", path)
	a.must(201, "web", "PUT", base+"/"+name+"/pools/q", `{}`)
	if got := owners(); !strings.Contains(got, "Apply") {
		a.Errorf("owners %q of an applied object", got)
	}
	a.must(204, "web", "DELETE", base+"/"+name, "")
}

// outage is for how long at least the cluster's API server is away.
const outage = 30 * time.Second

// Clients create and delete members through two servers, and repeat requests without response,
// while the cluster's API server is killed and restarted, and another load balancer is deleted
// while it is created: the final state is the result of each client's last request, and nothing
// else. A client that follows the status of a third one gets no other status.
func (a *api) testOutage(kubernetes *cluster.API) {
	const clients = 6
	before := a.must(200, "web", "GET", base, "").body
	a.must(201, "web", "PUT", base+"/busy", `{"forward":"nat","pools":[{"name":"p"}]}`)
	var answered, refused atomic.Int64
	// repeat sends a request until it is answered.
	repeat := func(r *rand.Rand, method, path, body string, headers ...string) int {
		for {
			got := a.do(r.IntN(2), "web", method, base+path, body, headers...)
			switch got.status {
			case 409: // others were faster all the time
				continue
			case 503:
			default:
				answered.Add(1)
				return got.status
			}
			refused.Add(1)
			pause, err := strconv.Atoi(got.header.Get("Retry-After"))
			if err != nil || pause < 1 {
				a.Errorf("%s %s: 503 with Retry-After %q", method, path, got.header.Get("Retry-After"))
			}
			time.Sleep(max(1, time.Duration(pause)) * time.Second)
		}
	}
	seed, member := fuzzrand.Seed(a), "/busy/pools/p/members/192.0.2.%d:80"
	var running sync.WaitGroup
	var there [clients]bool
	ctx, stop := context.WithCancel(a.Context())
	for i := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		running.Go(func() {
			for ctx.Err() == nil {
				was := there[i]
				there[i] = r.IntN(3) > 0
				if there[i] {
					if got := repeat(r, "PUT", fmt.Sprintf(member, i+1), `{}`); got != 201 && got != 200 || got == 201 && was {
						a.Errorf("member %d created: status %d, there before: %t", i+1, got, was)
					}
				} else if got := repeat(r, "DELETE", fmt.Sprintf(member, i+1), ""); got != 204 && got != 404 || got == 204 && !was {
					a.Errorf("member %d deleted: status %d, there before: %t", i+1, got, was)
				}
				other := []string{"/other", "/other/pools/p", "/other/pools/p/members/192.0.2.1:80"}[r.IntN(3)]
				method, body := "PUT", `{}`
				if other == "/other" {
					body = `{"forward":"nat"}`
				}
				if r.IntN(3) == 0 {
					method, body = "DELETE", ""
				}
				if got := repeat(r, method, other, body); got >= 300 && got != 404 {
					a.Errorf("%s %s: status %d", method, other, got)
				}
			}
		})
	}
	tag := a.must(200, "web", "GET", base+"/lb/status", "").header.Get("ETag")
	running.Go(func() {
		r := rand.New(rand.NewPCG(seed, clients))
		for ctx.Err() == nil {
			if got := repeat(r, "GET", "/lb/status?wait=1", "", "If-None-Match", tag); got != 304 {
				a.Errorf("another status, or none: %d", got)
			}
		}
	})
	more := func(counter *atomic.Int64, count int64, what string) {
		want := counter.Load() + count
		cluster.Await(a, what, func() error {
			if n := counter.Load(); n < want {
				return fmt.Errorf("%d of %d", n, want)
			}
			return nil
		})
	}
	more(&answered, 100, "answers")
	kubernetes.Stop(a)
	for stopped := time.Now(); time.Since(stopped) < outage; {
		more(&refused, clients, "refused requests")
	}
	kubernetes.Start(a)
	more(&answered, 100, "answers")
	stop()
	running.Wait()
	got := a.must(200, "web", "GET", base+"/busy/pools/p/members", "").body
	for i, want := range there {
		if strings.Contains(got, fmt.Sprintf(`"192.0.2.%d"`, i+1)) != want {
			a.Errorf("member %d: want %t in %s", i+1, want, got)
		}
	}
	a.do(0, "web", "DELETE", base+"/other", "")
	a.must(204, "web", "DELETE", base+"/busy", "")
	if left := a.must(200, "web", "GET", base, "").body; left != before {
		a.Errorf("left: %s, want %s", left, before)
	}
}

// testValidating tests a store that validates objects by the definition of the kind.
func (a *api) testValidating(t *testing.T) {
	t.Run("defaults", func(t *testing.T) { a.in(t).testDefaults() })
	t.Run("guide", func(t *testing.T) { a.in(t).testGuide() })
	t.Run("rejected", func(t *testing.T) { a.in(t).testRejected() })
	t.Run("conflicts", func(t *testing.T) { a.in(t).testConflicts() })
	t.Run("pages", func(t *testing.T) { a.in(t).testPages() })
}

// in is the API for a subtest.
func (a *api) in(t *testing.T) *api {
	sub := *a
	sub.TB = t
	return &sub
}

// The answer to a write has the defaults, and the tag of the next read. The same write again
// changes nothing.
func (a *api) testDefaults() {
	const body = `{"forward":"nat","labels":{"tier":"front"},"listeners":[{"name":"http","port":80,"idleTimeout":"90s"}]}`
	const want = `{"forward":"nat","labels":{"tier":"front"},"listeners":[{"enabled":true,"idleTimeout":"90s","name":"http","port":80,"protocol":"TCP"}],"name":"lb"}`
	first := a.must(201, "web", "PUT", base+"/lb", body, "If-None-Match", "*")
	for _, got := range []answer{first, a.must(200, "web", "GET", base+"/lb", ""), a.must(200, "web", "PUT", base+"/lb", body)} {
		if got.body != want || got.header.Get("ETag") != first.header.Get("ETag") {
			a.Errorf("tag %s, want %s; got\n%s, want\n%s", got.header.Get("ETag"), first.header.Get("ETag"), got.body, want)
		}
	}
	a.must(412, "web", "PUT", base+"/lb", body, "If-None-Match", "*")
	a.must(204, "web", "DELETE", base+"/lb", "")
	a.must(404, "web", "DELETE", base+"/lb", "")
}

// guided is a command of the guide that creates a part.
var guided = regexp.MustCompile(`(?m)^api -X PUT "\$url(/[^"]+)" -d '([^']+)'$`)

// The guide's commands create its load balancer.
func (a *api) testGuide() {
	text, err := os.ReadFile("../../docs/guides/api.md")
	if err != nil {
		a.Fatal(err)
	}
	steps := guided.FindAllStringSubmatch(string(text), -1)
	for _, step := range steps {
		a.must(201, "web", "PUT", base+step[1], step[2])
	}
	if got := a.must(200, "web", "GET", base+"/shop/pools/servers/members", "").body; len(steps) != 5 || strings.Count(got, "address") != 2 {
		a.Errorf("%d commands, members %s", len(steps), got)
	}
	a.must(204, "web", "DELETE", base+"/shop", "")
}

// Errors of the cluster's API server are translated to fields of the body.
func (a *api) testRejected() {
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","listeners":[{"name":"a","port":1}],"pools":[{"name":"p"}]}`)
	for _, test := range []struct {
		path, body string
		status     int
		field      string
	}{
		{"/lb", `{}`, 422, "forward"},
		{"/lb", `{"forward":"nat","spec":{}}`, 400, "spec"},
		{"/lb", `{"forward":"nat","labels":{"-":"a"}}`, 422, "labels"},
		{"/lb", `{"forward":"nat","listeners":[{"name":"a","port":1,"prot":"TCP"}]}`, 400, "listeners[0].prot"},
		{"/lb", `{"forward":"nat","listeners":[{"name":"a","port":1,"pool":"none"}]}`, 422, "listeners"},
		{"/lb", `{"forward":"nat","address":"10.0.0.256"}`, 422, "address"},
		{"/lb/listeners/b", `{"port":0}`, 422, "port"},
		{"/lb/listeners/b", `{"port":"80"}`, 422, "port"},
		{"/lb/listeners/b", `{"port":null}`, 422, "port"},
		{"/lb/listeners/b", `{"port":2,"idleTimeout":"long"}`, 422, "idleTimeout"},
		{"/lb/listeners/b", `{"port":2,"limit":{}}`, 400, "limit"},
		{"/lb/listeners/b", `{"port":2,"pool":"none"}`, 422, "listeners"},
		{"/lb/pools/p/members/192.0.2.1:1", `{"weight":257}`, 422, "weight"},
		{"/lb/pools/p/members", `{"items":[{"address":"192.0.2.1","port":1},{"address":"192.0.2.2","port":0}]}`, 422, "items[1].port"},
		{"/lb/pools/p/members", `{"items":[{"address":"192.0.2.1","port":1},{"address":"192.0.2.1","port":1}]}`, 422, "items[1]"},
		{"/lb/pools/p/healthcheck", `{"type":"tcp","path":"/"}`, 422, "path"},
		{"/lb/pools/p/healthcheck", `{"type":"tcp","timout":"1s"}`, 400, "timout"},
	} {
		got := a.must(test.status, "web", "PUT", base+test.path, test.body)
		if !strings.Contains(got.body, `"field":"`+test.field+`"`) {
			a.Errorf("%s %s: want the field %s: %s", test.path, test.body, test.field, got.body)
		}
	}
	if got := a.must(200, "web", "GET", base+"/lb/listeners", "").body; strings.Count(got, "name") != 1 {
		a.Errorf("listeners %s", got)
	}
	a.must(204, "web", "DELETE", base+"/lb", "")
}

// Changes of different parts at the same time are all made.
func (a *api) testConflicts() {
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","pools":[{"name":"p"}]}`)
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			path := fmt.Sprintf("%s/lb/pools/p/members/192.0.2.%d:80", base, i+1)
			if got := a.do(i%2, "web", "PUT", path, `{}`); got.status != 201 {
				a.Errorf("%s: status %d: %s", path, got.status, got.body)
			}
		})
	}
	all.Wait()
	if got := a.must(200, "web", "GET", base+"/lb/pools/p/members", "").body; strings.Count(got, "address") != writers {
		a.Errorf("members %s", got)
	}
	a.must(204, "web", "DELETE", base+"/lb", "")
}

// The status combines the conditions of the controller and the reports of nodes. The load balancer
// stays, so that another test can follow it.
func (a *api) testStatus(store *kubernetesStore, kubernetes *cluster.API) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		a.Fatal(err)
	}
	admin, err := client.New(kubernetes.Config(), client.Options{Scheme: scheme})
	if err != nil {
		a.Fatal(err)
	}
	must := func(err error) {
		a.Helper()
		if err != nil {
			a.Fatal(err)
		}
	}
	group := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	must(admin.Create(a.Context(), group))
	group.Status.Nodes = []v1alpha1.GroupNode{{Name: "n1", Ready: true}, {Name: "n2"}}
	must(admin.Status().Update(a.Context(), group))
	must(admin.Create(a.Context(), &v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.BalancerNodeStatus{
		Version: "1", DataPlane: "xdp", Started: metav1.Now(), Backends: v1alpha1.BackendCounts{Total: 2, Unhealthy: 1},
		Unhealthy: []v1alpha1.UnhealthyBackend{{Service: "flb:project-web/lb/http", Backend: "192.0.2.1:80", Message: "refused"}},
	}}))
	for second, node := range []string{"n1", "n2", "other"} {
		must(admin.Create(a.Context(), &v1alpha1.BalancerNodeStatistics{
			ObjectMeta: metav1.ObjectMeta{Name: node}, Status: *counted(int64(second), map[string]int64{"flb:project-web/lb/http": 10}),
		}))
	}
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","listeners":[{"name":"http","port":80,"pool":"p"}],"pools":[{"name":"p","healthCheck":{"type":"tcp"},`+
		`"members":[{"address":"192.0.2.1","port":80},{"address":"192.0.2.2","port":80}]}]}`)
	var b v1alpha1.LoadBalancer
	must(admin.Get(a.Context(), client.ObjectKey{Namespace: "project-web", Name: "lb"}, &b))
	b.Status.Address, b.Status.Group = "203.0.113.1", "default"
	must(admin.Status().Update(a.Context(), &b))
	cluster.Await(a, "the dead member", func() error {
		got := a.do(0, "web", "GET", base+"/lb/status", "")
		for _, want := range []string{
			`"operatingStatus":"DEGRADED"`, `{"name":"192.0.2.1:80","provisioningStatus":"PENDING_CREATE","operatingStatus":"ERROR","message":"n1: refused"}`,
			`{"name":"192.0.2.2:80","provisioningStatus":"PENDING_CREATE","operatingStatus":"ONLINE"}`, `"address":"203.0.113.1"`,
		} {
			if !strings.Contains(got.body, want) {
				return fmt.Errorf("no %s in %s", want, got.body)
			}
		}
		return store.ready()
	})
	// The counters of a node that isn't ready still count for the load balancer.
	const statistics = `{"name":"lb","nodes":2,"reportedNodes":2,"oldestReport":"1970-01-01T00:00:00Z","packets":20,"bytes":2000,"newFlows":2,` +
		`"listeners":[{"name":"http","packets":20,"bytes":2000,"newFlows":2}]}`
	cluster.Await(a, "the counters", func() error {
		if got := a.do(0, "web", "GET", base+"/lb/statistics", ""); got.body != statistics {
			return fmt.Errorf("got %s, want %s", got.body, statistics)
		}
		return nil
	})
}

func (a *api) testPages() {
	for i := range 3 {
		a.must(201, "web", "PUT", fmt.Sprintf("%s/lb%d", base, i), fmt.Sprintf(`{"forward":"nat","labels":{"odd":"%d"}}`, i%2))
	}
	seen, next := "", "?limit=1"
	for range 3 {
		page := a.must(200, "web", "GET", base+next, "").body
		_, name, _ := strings.Cut(page, `"name":"`)
		name, _, _ = strings.Cut(name, `"`)
		_, token, _ := strings.Cut(page, `"continue":"`)
		token, _, _ = strings.Cut(token, `"`)
		seen, next = seen+" "+name, "?limit=1&continue="+token
	}
	if seen != " lb0 lb1 lb2" || next != "?limit=1&continue=" {
		a.Errorf("pages%s, then %s", seen, next)
	}
	const zero, one = `{"forward":"nat","labels":{"odd":"0"},"name":"lb0"}`, `{"forward":"nat","labels":{"odd":"1"},"name":"lb1"}`
	for query, want := range map[string]string{
		"limit=2":                        `{"items":[` + zero + `,` + one + `],"continue":"`,
		"labelSelector=odd%3D1":          `{"items":[` + one + `]}`,
		"labelSelector=odd%3D0&limit=1":  `{"items":[` + zero + `],"continue":"`,
		"labelSelector=odd+in+(2)":       `{"items":[]}`,
		"labelSelector=%21odd&limit=500": `{"items":[]}`,
	} {
		if got := a.must(200, "web", "GET", base+"?"+query, "").body; !strings.HasPrefix(got, want) {
			a.Errorf("%s: got\n%s, want\n%s", query, got, want)
		}
	}
	a.must(400, "web", "GET", base+"?continue=nonsense", "")
	for i := range 3 {
		a.must(204, "web", "DELETE", fmt.Sprintf("%s/lb%d", base, i), "")
	}
}
