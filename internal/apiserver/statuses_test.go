// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/fuzzrand"
)

// statusClient follows the statuses of a client's projects.
type statusClient struct {
	*api
	client, query, version string
}

func followStatuses(a *api, client, query string) *statusClient {
	return &statusClient{a, client, query, ""}
}

// next returns the items that have changed since the last call.
func (f *statusClient) next() (items []string, complete bool) {
	f.Helper()
	var got statusChanges
	if err := json.Unmarshal([]byte(f.must(200, f.client, "GET", statusesPath+"?"+f.query+"&since="+f.version, "").body), &got); err != nil {
		f.Fatal(err)
	}
	f.version = got.Version
	for _, item := range got.Items {
		items = append(items, string(item))
	}
	return items, got.Complete
}

// await follows until an item has all of some texts.
func (f *statusClient) await(texts ...string) {
	f.Helper()
	var last []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		items, _ := f.next()
		if slices.ContainsFunc(items, func(item string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(item, text) })
		}) {
			return
		}
		last = append(last, items...)
	}
	f.Fatalf("no item with %q in %q", texts, last)
}

// itemNames returns project and name of items, in their order.
func itemNames(items []string) (all []string) {
	for _, text := range items {
		var item statusItem
		if err := json.Unmarshal([]byte(text), &item); err != nil {
			return []string{err.Error()}
		}
		name := item.Project + "/" + item.Name
		if item.Deleted {
			name += " deleted"
		}
		all = append(all, name)
	}
	return all
}

// A client gets the load balancers of its projects that have changed, and waits for them.
func TestStatuses(t *testing.T) {
	a := newAPI(t, 1)
	reportText, err := json.Marshal(servedBy())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		a := a.in(t)
		web, all := followStatuses(a, "web", "wait=5"), followStatuses(a, "all", "wait=5&labelSelector=tier")
		want := func(f *statusClient, waited time.Duration, known bool, want ...string) {
			t.Helper()
			began := time.Now()
			items, complete := f.next()
			if got := itemNames(items); !slices.Equal(got, want) || complete == known || time.Since(began) != waited {
				t.Errorf("%s after %s: %q, complete %t; want %q", f.client, time.Since(began), got, complete, want)
			}
		}
		later := func(after time.Duration, do func()) {
			go func() {
				time.Sleep(after)
				do()
			}()
		}
		a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","listeners":[{"name":"l","port":80,"pool":"p"}],"pools":[{"name":"p","members":[{"address":"192.0.2.1","port":80}]}]}`)
		a.must(201, "other", "PUT", "/v1/projects/other/loadbalancers/lb", `{"forward":"nat","labels":{"tier":"front"}}`)
		want(web, 0, false, "web/lb")
		want(all, 0, false, "other/lb")
		want(web, maxWait*time.Second, true)
		later(1100*time.Millisecond, func() { a.must(201, "other", "PUT", "/v1/projects/other/loadbalancers/more", `{"forward":"nat"}`) })
		later(2100*time.Millisecond, func() { a.must(201, "web", "PUT", base+"/lb/pools/q", `{}`) })
		want(web, 2500*time.Millisecond, true, "web/lb")
		later(100*time.Millisecond, func() { a.must(204, "node", "PUT", "/v1/nodes/n1/report", string(reportText)) })
		want(web, 500*time.Millisecond, true, "web/lb")
		later(100*time.Millisecond, func() {
			a.must(204, "node", "PUT", "/v1/nodes/n1/report", string(reportText)) // the same
		})
		later(600*time.Millisecond, func() {
			a.must(204, "node", "PUT", "/v1/nodes/n1/statistics", `{"reported":"2026-01-02T03:04:05Z","listeners":[{"service":"flb:web/lb/l","packets":7,"bytes":700,"newFlows":1}]}`)
		})
		want(web, time.Second, true, "web/lb")
		if items, _ := followStatuses(a, "web", "").next(); !strings.Contains(items[0], `"readyNodes":1,`) || !strings.Contains(items[0], `"packets":7,`) {
			t.Errorf("item %s", items[0])
		}
		later(100*time.Millisecond, func() { a.must(204, "web", "DELETE", base+"/lb", "") })
		want(web, 500*time.Millisecond, true, "web/lb deleted")
		web.version = "another-server.7.7"
		want(web, 0, false)
		time.Sleep(reportLifetime) // the node is forgotten
		want(all, 0, true, "other/lb")
		for _, query := range []string{"wait=6", "wait=x", "labelSelector=a%3D%3D%3D", "holder=" + strings.Repeat("h", 254), "all="} {
			a.must(400, "web", "GET", statusesPath+"?"+query, "")
		}
		a.must(403, "node", "GET", statusesPath, "")
	})
}

// Of the holders of a client one is answered, until it asks no more; a new server knows the last one.
func TestHolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	synctest.Test(t, func(t *testing.T) {
		store := openEmbedded(t, path, anyPolicy)
		a := newAPIOf(t, store, 1)
		ask := func(status int, client, holder string) {
			t.Helper()
			a.must(status, client, "GET", statusesPath+"?holder="+holder, "")
		}
		ask(200, "web", "a")
		ask(409, "web", "b")
		ask(200, "all", "b") // of another client
		ask(200, "web", "")
		time.Sleep(leaseTime - time.Second)
		ask(200, "web", "a")
		time.Sleep(leaseTime - time.Second)
		if got := a.must(409, "web", "GET", statusesPath+"?holder=b", "").header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After %s", got)
		}
		time.Sleep(time.Second)
		ask(200, "web", "b")
		ask(409, "web", "a")
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		a = newAPIOf(t, openEmbedded(t, path, anyPolicy), 1)
		ask(409, "web", "a")
		ask(200, "web", "b")
		time.Sleep(leaseTime)
		ask(200, "web", "a")
	})
}

// changingStore has load balancers that tests change.
type changingStore struct {
	Store
	balancers map[types.NamespacedName]*v1alpha1.LoadBalancer
	changed   []types.NamespacedName
	reported  bool
	reports   map[string]*v1alpha1.BalancerNodeStatus
	fails     func() bool
}

func (s *changingStore) Changed(context.Context) (names []types.NamespacedName, reported bool, err error) {
	if s.fails() {
		return nil, false, errAway
	}
	names, reported = s.changed, s.reported
	s.changed, s.reported = nil, false
	return names, reported, nil
}

func (s *changingStore) Cached(_ context.Context, name types.NamespacedName) (*v1alpha1.LoadBalancer, error) {
	if s.fails() {
		return nil, errAway
	}
	return s.balancers[name], nil
}

func (s *changingStore) Reports(context.Context, string) (map[string]*v1alpha1.BalancerNodeStatus, error) {
	return s.reports, nil
}

func (s *changingStore) Statistics(context.Context, string) (map[string]*v1alpha1.BalancerNodeStatisticsStatus, error) {
	return nil, nil
}

// Whatever happens, also errors of the store, long absences and many deletions, a client that follows has the same
// load balancers as a new client, and gets nothing while nothing changes.
func TestStatusesFollowed(t *testing.T) {
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	failing := false
	store := &changingStore{balancers: map[types.NamespacedName]*v1alpha1.LoadBalancer{}, fails: func() bool { return failing && random.IntN(20) == 0 }}
	b := newBoard()
	b.maxDeleted = 300
	all := func(string, labels.Set) bool { return true }
	read := func(version string) statusChanges {
		for {
			b.filled = time.Time{}
			if got, err := b.since(t.Context(), store, version, all); err == nil {
				return got
			}
		}
	}
	// take has a client follow to the end.
	take := func(has map[string]string, version string) string {
		for {
			got := read(version)
			if got.Complete {
				clear(has)
			}
			for _, text := range got.Items {
				var item statusItem
				if err := json.Unmarshal(text, &item); err != nil {
					t.Fatal(err)
				}
				key := item.Project + "/" + item.Name
				if has[key] = string(text); item.Deleted {
					delete(has, key)
				}
			}
			version = got.Version
			if len(got.Items) == 0 {
				return version
			}
		}
	}
	has, version := map[string]string{}, ""
	for step := range 60 {
		failing = step%2 == 1
		for range random.IntN([]int{2, 40, 500}[random.IntN(3)]) {
			name := types.NamespacedName{Namespace: fmt.Sprint("p", random.IntN(3)), Name: fmt.Sprint("lb", random.IntN(500))}
			if random.IntN(2) == 0 {
				delete(store.balancers, name)
			} else {
				next := served()
				next.Namespace, next.Name, next.Generation = name.Namespace, name.Name, int64(step)
				store.balancers[name] = next
			}
			store.changed = append(store.changed, name)
		}
		if random.IntN(4) == 0 {
			store.reported, store.reports = true, map[string]*v1alpha1.BalancerNodeStatus{fmt.Sprint("n", random.IntN(2)): nil}
		}
		if random.IntN(3) > 0 {
			version = take(has, version)
			fresh := map[string]string{}
			take(fresh, "")
			if !maps.Equal(has, fresh) || len(fresh) != len(store.balancers) {
				t.Fatalf("step %d: the client has %d, a new one %d, the store %d load balancers", step, len(has), len(fresh), len(store.balancers))
			}
			if got := read(version); got.Version != version || len(got.Items) > 0 {
				t.Errorf("step %d: %d items without a change", step, len(got.Items))
			}
		}
	}
}

// BenchmarkStatuses measures how long 1,000 load balancers with 10 members and a health check on 4 nodes take that are
// followed: at rest, and as a node reports.
func BenchmarkStatuses(b *testing.B) {
	s := openEmbedded(b, filepath.Join(b.TempDir(), "data"), `
addressPools: [{name: public, addresses: [203.0.112.0/20]}]
services: {perNamespace: {services: 2000, probes: 20000}}
loadBalancers: {memberNetworks: [10.0.0.0/8]}
`)
	a := newAPIOf(b, s, 1)
	var members []string
	for i := range 10 {
		members = append(members, fmt.Sprintf(`{"address":"10.0.0.%d","port":80}`, i+1))
	}
	body := `{"forward":"nat","listeners":[{"name":"l","port":80,"pool":"p"}],"pools":[{"name":"p","healthCheck":{"type":"tcp"},"members":[` + strings.Join(members, ",") + `]}]}`
	for i := range 1000 {
		a.must(201, "web", "PUT", fmt.Sprintf("%s/lb%d", base, i), body)
	}
	board := newBoard()
	fill := func() {
		board.filled = time.Time{}
		if _, err := board.since(b.Context(), s, "", func(string, labels.Set) bool { return false }); err != nil {
			b.Fatal(err)
		}
	}
	fill()
	for _, reporting := range []bool{false, true} {
		b.Run(fmt.Sprintf("reporting=%t", reporting), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				for i := 0; i < 4 && reporting; i++ {
					r := servedBy()
					r["unhealthy"] = []any{value{"service": fmt.Sprintf("flb:web/lb%d/l", n%1000), "backend": "10.0.0.1:80", "message": "refused"}}
					r["backends"] = value{"total": int64(10), "inUse": int64(9), "unhealthy": int64(1), "drained": int64(0)}
					if err := s.Report(fmt.Sprint("n", i), r); err != nil {
						b.Fatal(err)
					}
				}
				fill()
			}
		})
	}
}
