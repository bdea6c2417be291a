// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// node is a node that follows API servers.
type node struct {
	*Source
	dir string

	mu sync.Mutex
	// served are the services of all updates, by VIP.
	served map[string]lb.Service
	// updates counts the updates, changed and removed are the services of the last one.
	updates          int
	changed, removed []string
	refuse           error
	stop             func()
}

// startNode starts an agent's source in a folder.
func startNode(t *testing.T, dir string, servers map[string]*server, urls ...string) *node {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "token")); err != nil {
		writeToken(t, dir, token)
	}
	from, err := Open(Options{
		Server: source.Server{URLs: urls, TokenFile: filepath.Join(dir, "token")}, Node: "lb1", StateDir: dir,
		Limits:      dataplane.Limits{Forwards: []lb.Forward{lb.L2DSR, lb.IPIP}, MaxBackends: 1024},
		MaxServices: 3, MaxBackends: 100, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	from.servers.transport = transport(servers)
	n := &node{Source: from, dir: dir, served: map[string]lb.Service{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := from.Run(ctx, n.apply); err != nil {
			t.Error(err)
		}
	})
	n.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(n.stop)
	return n
}

func writeToken(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *node) apply(u source.Update) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updates++
	if n.refuse != nil {
		return n.refuse
	}
	if u.Whole {
		n.served = map[string]lb.Service{}
	}
	n.changed, n.removed = nil, nil
	for _, s := range u.Changed {
		n.served[s.VIP.String()] = s
		n.changed = append(n.changed, s.Name)
	}
	for _, vip := range u.Removed {
		delete(n.served, vip.String())
		n.removed = append(n.removed, vip.String())
	}
	return nil
}

// setRefuse has updates refused with an error; nil for accepted.
func (n *node) setRefuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = err
}

// names returns the names of the services, sorted.
func (n *node) names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, s := range n.served {
		all = append(all, strings.TrimPrefix(s.Name, "flb:web/"))
	}
	slices.Sort(all)
	return all
}

// texts returns the problems of objects.
func (n *node) texts() (all []string) {
	for _, p := range n.State().Problems {
		all = append(all, p.String())
	}
	return all
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.updates
}

// settle waits until all that happens at once has happened, and then for a time.
func settle(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

func wantNames(t *testing.T, n *node, want ...string) {
	t.Helper()
	if got := n.names(); !slices.Equal(got, want) {
		t.Fatalf("served are %q, want %q", got, want)
	}
}

// balancer is a LoadBalancer at 10.1.1.N with a listener "http" and one member.
func balancer(n int) *v1alpha1.LoadBalancer {
	b := &v1alpha1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: fmt.Sprintf("b%d", n), CreationTimestamp: metav1.Unix(1000+int64(n), 0),
	}}
	b.Spec = v1alpha1.LoadBalancerSpec{
		Forward:   "l2dsr",
		Listeners: []v1alpha1.Listener{{Name: "http", Port: 80, Pool: "p"}},
		Pools:     []v1alpha1.Pool{{Name: "p", Members: []v1alpha1.Member{{Address: "10.0.2.101", Port: 80}}}},
	}
	b.Status.Address = fmt.Sprintf("10.1.1.%d", n)
	return b
}

const apiURL = "http://api:80"

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.put(t, balancer(1))
		s.put(t, balancer(2))
		n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
		settle(0)
		wantNames(t, n, "b1/http", "b2/http")
		if one := n.served["tcp 10.1.1.1:80"]; one.Namespace != "web" || one.Created != 1001 || len(one.Backends) != 1 {
			t.Errorf("served is %+v", one)
		}
		if d := n.Delivered(); d != (v1alpha1.ObservedVersions{LoadBalancers: "2"}) {
			t.Errorf("delivered %+v", d)
		}
		b := balancer(1)
		b.Spec.Pools[0].Members = append(b.Spec.Pools[0].Members, v1alpha1.Member{Address: "10.0.2.102", Port: 80})
		s.put(t, b)
		settle(0)
		if !slices.Equal(n.changed, []string{"flb:web/b1/http"}) || len(n.removed) > 0 || len(n.served["tcp 10.1.1.1:80"].Backends) != 2 {
			t.Errorf("a change of one object changes %q, removes %q", n.changed, n.removed)
		}
		s.delete("b2")
		settle(0)
		wantNames(t, n, "b1/http")
		if !slices.Equal(n.removed, []string{"tcp 10.1.1.2:80"}) || n.Delivered().LoadBalancers != "4" {
			t.Errorf("removed %q, delivered %+v", n.removed, n.Delivered())
		}
		if state := n.State(); !state.Reachable || state.Objects != 1 || state.Server != apiURL || state.Synced.IsZero() {
			t.Errorf("the state is %+v", state)
		}
		settle(10 * time.Minute) // the server is alive
		if watches, _ := s.written(); watches != 1 {
			t.Errorf("%d connections", watches)
		}
	})
}

// Services don't change while the server is down. Afterwards only changed services are updated.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for i := range 3 {
			s.put(t, balancer(i+1))
		}
		n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
		settle(time.Second)
		if err := n.Report(t.Context(), &v1alpha1.BalancerNodeStatus{Version: "1"}); err != nil {
			t.Fatal(err)
		}
		counters := v1alpha1.BalancerNodeStatisticsStatus{Reported: metav1.Now(), Listeners: []v1alpha1.ListenerStatistics{{Service: "flb:default/b1/http", Packets: 2, Bytes: 3, NewFlows: 1}}}
		if err := n.ReportStatistics(t.Context(), &counters); err != nil {
			t.Fatal(err)
		}
		updates := n.count()
		s.kill()
		settle(time.Minute)
		if state := n.State(); state.Reachable || !strings.Contains(state.Error, "connection refused") || time.Since(state.Since) < 59*time.Second {
			t.Errorf("the state is %+v", state)
		}
		if err := n.Report(t.Context(), &v1alpha1.BalancerNodeStatus{Version: "2"}); err != nil {
			t.Errorf("a report without a server isn't kept: %v", err)
		}
		s.start()
		settle(2 * time.Second)
		if n.count() != updates || !n.State().Reachable {
			t.Errorf("%d updates, state %+v", n.count()-updates, n.State())
		}
		if _, reports := s.written(); len(reports) != 2 || reports[1].Version != "2" {
			t.Errorf("reports %+v: want that of before, and the last one again", reports)
		}
		want := v1alpha1.ListenerStatistics{Service: "flb:default/b1/http", Packets: 2, Bytes: 3, NewFlows: 1}
		if got := s.counted(); len(got) != 2 || len(got[1].Listeners) != 1 || got[1].Listeners[0] != want || !got[1].Reported.Time.Equal(counters.Reported.Truncate(time.Second)) {
			t.Errorf("counters %+v: want them twice", got)
		}
		wantNames(t, n, "b1/http", "b2/http", "b3/http")

		s.kill()
		b := balancer(1)
		b.Spec.Listeners[0].Port, b.Spec.Pools[0].Members[0].Port = 81, 81
		s.put(t, b)
		s.delete("b2")
		settle(time.Second)
		s.start()
		settle(2 * time.Second)
		wantNames(t, n, "b1/http", "b3/http")
		if !slices.Equal(n.changed, []string{"flb:web/b1/http"}) || !slices.Equal(n.removed, []string{"tcp 10.1.1.1:80", "tcp 10.1.1.2:80"}) {
			t.Errorf("changed %q, removed %q", n.changed, n.removed)
		}
	})
}

// Reports that a restarted server rejects are sent again until it accepts them: a node without
// traffic has no newer counters.
func TestReportRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
		settle(time.Second)
		if err := errors.Join(n.Report(t.Context(), &v1alpha1.BalancerNodeStatus{}), n.ReportStatistics(t.Context(), &v1alpha1.BalancerNodeStatisticsStatus{})); err != nil {
			t.Fatal(err)
		}
		s.kill()
		settle(time.Second)
		s.mu.Lock()
		s.reports, s.statistics, s.busy = nil, nil, 6
		s.mu.Unlock()
		s.start()
		settle(time.Minute)
		if _, reports := s.written(); len(reports) == 0 || len(s.counted()) == 0 {
			t.Errorf("%d reports and %d statistics are accepted, want some", len(reports), len(s.counted()))
		}
	})
}

// An agent that starts while the server is down serves the last agent's services.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newServer(t), t.TempDir()
		s.kill()
		n := startNode(t, dir, map[string]*server{"api": s}, apiURL)
		settle(time.Minute)
		if n.count() > 0 {
			t.Fatal("an update without a server and a saved state")
		}
		s.put(t, balancer(1))
		s.put(t, balancer(2))
		s.start()
		settle(3 * time.Second)
		wantNames(t, n, "b1/http", "b2/http")
		n.stop()

		s.kill()
		s.delete("b2")
		n = startNode(t, dir, map[string]*server{"api": s}, apiURL)
		n.setRefuse(errors.New("refused"))
		settle(source.StartTimeout + 100*time.Millisecond)
		n.setRefuse(nil)
		settle(3 * time.Second)
		wantNames(t, n, "b1/http", "b2/http")
		if state := n.State(); state.Restored.IsZero() || !state.Synced.IsZero() {
			t.Errorf("the state is %+v", state)
		}
		s.start()
		settle(3 * time.Second)
		wantNames(t, n, "b1/http")
		if state := n.State(); !state.Restored.IsZero() || state.Synced.IsZero() {
			t.Errorf("the state is %+v", state)
		}
		n.stop()
		if err := n.Forget(); err != nil {
			t.Error(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(left) > 0 {
			t.Errorf("left are %q, %v", left, err)
		}
	})
}

// A rejected update is repeated with all services.
func TestRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.put(t, balancer(1))
		n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
		settle(0)
		n.setRefuse(errors.New("refused"))
		s.put(t, balancer(2))
		settle(time.Second)
		if n.Delivered().LoadBalancers != "1" {
			t.Errorf("delivered %+v", n.Delivered())
		}
		n.setRefuse(nil)
		settle(3 * time.Second)
		wantNames(t, n, "b1/http", "b2/http")
		if len(n.changed) != 2 || n.Delivered().LoadBalancers != "2" {
			t.Errorf("changed %q, delivered %+v", n.changed, n.Delivered())
		}
	})
}

// An object with an error affects itself only.
func TestInvalidObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.put(t, balancer(1))
		same, nat, parts := balancer(2), balancer(3), balancer(4)
		same.Status.Address = "10.1.1.1"
		nat.Spec.Forward = "nat"
		parts.Spec.Listeners = append(parts.Spec.Listeners, v1alpha1.Listener{Name: "twice", Port: 80, Pool: "p"}, v1alpha1.Listener{Name: "none", Port: 81, Pool: "q"})
		parts.Spec.Pools[0].Members = append(parts.Spec.Pools[0].Members, v1alpha1.Member{Address: "10.0.2.102", Port: 8080})
		unassigned := balancer(5)
		unassigned.Status.Address = ""
		for _, b := range []*v1alpha1.LoadBalancer{same, nat, parts, unassigned} {
			s.put(t, b)
		}
		s.putText("text", `{"metadata":{"namespace":"web","name":"text","resourceVersion":"6"},"spec":{"listeners":7}}`)
		n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
		settle(0)
		wantNames(t, n, "b1/http", "b4/http")
		if len(n.served["tcp 10.1.1.4:80"].Backends) != 1 {
			t.Errorf("served is %+v", n.served["tcp 10.1.1.4:80"])
		}
		want := []string{
			"LoadBalancer web/b2: tcp 10.1.1.1:80 belongs to LoadBalancer web/b1, which is older",
			"LoadBalancer web/b3: tcp 10.1.1.3:80: forward: ",
			"LoadBalancer web/b4: listener none: pool q is missing",
			"LoadBalancer web/b4: tcp 10.1.1.4:80: backends[1].port: ",
			"LoadBalancer web/b4: tcp 10.1.1.4:80: port: duplicate",
			"LoadBalancer web/text: can't be read: ",
		}
		checkTexts(t, n, want)

		// The last version that can be read is served.
		s.putText("b1", `{"metadata":{"namespace":"web","name":"b1","resourceVersion":"7"},"spec":[]}`)
		s.put(t, balancer(6))
		s.put(t, balancer(7))
		settle(0)
		wantNames(t, n, "b1/http", "b4/http", "b6/http")
		want = slices.Concat([]string{"LoadBalancer web/b1: can't be read: "}, want[:5],
			[]string{"LoadBalancer web/b7: tcp 10.1.1.7:80: the node is full (3 services"}, want[5:])
		checkTexts(t, n, want)
		for _, name := range []string{"b1", "b2", "b3", "b4", "text", "b7"} {
			s.delete(name)
		}
		settle(0)
		wantNames(t, n, "b6/http")
		checkTexts(t, n, nil)
	})
}

// checkTexts compares the problems with the beginnings of their texts.
func checkTexts(t *testing.T, n *node, want []string) {
	t.Helper()
	if got := n.texts(); !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A token is read for each connection.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newServer(t), t.TempDir()
		s.put(t, balancer(1))
		writeToken(t, dir, "other")
		n := startNode(t, dir, map[string]*server{"api": s}, apiURL)
		settle(time.Second)
		if state := n.State(); n.count() > 0 || state.Reachable || state.Error != apiURL+`: 401 Unauthorized: "want a valid bearer token"` {
			t.Errorf("the state is %+v", state)
		}
		if err := os.Remove(filepath.Join(dir, "token")); err != nil {
			t.Fatal(err)
		}
		settle(3 * time.Second)
		if state := n.State(); !strings.Contains(state.Error, "token: no such file") {
			t.Errorf("the state is %+v", state)
		}
		writeToken(t, dir, token)
		settle(3 * time.Second)
		wantNames(t, n, "b1/http")
		writeToken(t, dir, "other")
		if err := n.Report(t.Context(), &v1alpha1.BalancerNodeStatus{}); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("a report with another token: %v", err)
		}
	})
}

// A connection on which nothing arrives is given up.
func TestWatchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.put(t, balancer(1))
		n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
		settle(0)
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
		settle(10 * time.Second) // the last line
		settle(maxSilence - time.Second)
		if watches, _ := s.written(); watches != 1 {
			t.Errorf("%d connections in %s of silence", watches, maxSilence-time.Second)
		}
		settle(2 * time.Second)
		if watches, _ := s.written(); watches != 2 {
			t.Errorf("%d connections after the silence", watches)
		}
		wantNames(t, n, "b1/http")
	})
}

// While one server is down another one is followed.
func TestServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
		for _, s := range servers {
			s.put(t, balancer(1))
		}
		n := startNode(t, t.TempDir(), servers, "http://a:80", "http://b:80")
		settle(0)
		for i, down := range []string{"a", "b", "a"} {
			updates := n.count()
			servers[down].kill()
			settle(3 * time.Second)
			up := map[string]string{"a": "b", "b": "a"}[down]
			if state := n.State(); !state.Reachable || state.Server != "http://"+up+":80" || n.count() != updates {
				t.Errorf("%d: the state is %+v after %d updates", i, state, n.count()-updates)
			}
			servers[down].start()
		}
		for _, s := range servers {
			s.kill()
		}
		settle(time.Minute)
		if state := n.State(); !strings.Contains(state.Error, "http://a:80: ") || !strings.Contains(state.Error, "; http://b:80: ") {
			t.Errorf("the state is %+v", state)
		}
	})
}

// A node that has served a file's load balancers refuses another file and an older copy, also after a
// restart, unless the server replaces them.
func TestOtherFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newServer(t), t.TempDir()
		s.identity = "first"
		s.put(t, balancer(1))
		n := startNode(t, dir, map[string]*server{"api": s}, apiURL)
		settle(3 * time.Second)
		wantNames(t, n, "b1/http")
		for _, other := range []struct {
			identity string
			version  int
			want     string
		}{
			{"second", 9, `another one than before ("second", not "first")`},
			{"", 9, "another one than before"},
			{"first", 0, "older than before (version 0, not 1 or later)"},
		} {
			s.kill()
			s.objects, s.identity, s.version, s.replaces = map[string]string{}, other.identity, other.version, false
			s.start()
			for range 2 {
				settle(time.Minute)
				wantNames(t, n, "b1/http")
				if state := n.State(); state.Reachable || !strings.Contains(state.Error, other.want) || !strings.Contains(state.Error, "--replace") {
					t.Errorf("the state is %+v, want %s", state, other.want)
				}
				n.stop()
				n = startNode(t, dir, map[string]*server{"api": s}, apiURL)
			}
		}
		s.kill()
		s.replaces = true
		s.start()
		settle(time.Minute)
		wantNames(t, n)
	})
}

// A node that gets all objects keeps their services, and nothing else of them; one that gets them again
// decodes none of them.
func TestMemoryOfObjects(t *testing.T) {
	s, err := Open(Options{
		Node: "lb1", StateDir: t.TempDir(), MaxServices: 100, MaxBackends: 100, Log: slog.New(slog.DiscardHandler),
		Limits: dataplane.Limits{Forwards: []lb.Forward{lb.L2DSR}, MaxBackends: 1024},
	})
	if err != nil {
		t.Fatal(err)
	}
	large := balancer(1)
	for i := range 64 {
		unused := v1alpha1.Pool{Name: fmt.Sprintf("unused%d", i)}
		for j := range 256 {
			unused.Members = append(unused.Members, v1alpha1.Member{Address: v1alpha1.IPAddress(fmt.Sprintf("10.0.%d.%d", i, j)), Port: 80})
		}
		large.Spec.Pools = append(large.Spec.Pools, unused)
	}
	text, err := json.Marshal(large)
	if err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, listed := used(), map[source.Object]object{}
	for round := range 2 {
		for i := range 30 {
			line := fmt.Sprintf(`{"type":"PUT","object":%s}`, strings.Replace(string(text), `"b1"`, fmt.Sprintf(`"b%d"`, i), 1))
			if listed, err = s.apply("", []byte(line), listed); err != nil {
				t.Fatal(err)
			}
		}
		if got := used() - before; got > 32<<20 {
			t.Errorf("%d MB for 30 services", got>>20)
		}
		for id, o := range listed {
			if o.known != (round > 0) {
				t.Errorf("round %d: %s is known: %t", round, id, o.known)
			}
		}
		if _, err := s.apply("", []byte(`{"type":"SYNCED","version":"1"}`), listed); err != nil {
			t.Fatal(err)
		}
		if s.balancers.vips.Flush(); len(s.balancers.vips.Services()) != 1 { // all have one address
			t.Errorf("%d services", len(s.balancers.vips.Services()))
		}
		listed = map[source.Object]object{}
	}
}

// An invalid response changes nothing.
func TestResponses(t *testing.T) {
	const put = `{"type":"PUT","object":{"metadata":{"namespace":"web","name":"b9"},"spec":{"forward":"l2dsr"},"status":{"address":"10.1.1.9"}}}`
	for name, c := range map[string]struct {
		kind, text string
		status     int
		want       string
	}{
		"end":        {watchType, put, 200, "the server ended the response"},
		"no JSON":    {watchType, put + "\nhello", 200, "line of the response: invalid character"},
		"no name":    {watchType, `{"type":"PUT","object":{}}`, 200, "object: without metadata.namespace and metadata.name"},
		"no object":  {watchType, `{"type":"DELETE"}`, 200, "object: unexpected end of JSON input"},
		"other type": {"text/html", "<html>", 200, `the response is "text/html": want application/x-ndjson`},
		"long line":  {watchType, strings.Repeat("x", maxLine+1), 200, "token too long"},
		"redirect":   {watchType, put, 302, "302 Found"},
		"error":      {"text/plain", "no", 503, "503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.put(t, balancer(1))
				n := startNode(t, t.TempDir(), map[string]*server{"api": s}, apiURL)
				settle(0)
				updates := n.count()
				s.mu.Lock()
				s.watch = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", c.kind)
					w.Header().Set("Location", "http://other/")
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.text)
				}
				s.mu.Unlock()
				s.kill()
				settle(time.Second)
				s.start()
				settle(3 * time.Second)
				if state := n.State(); n.count() != updates || !strings.Contains(state.Error, c.want) {
					t.Errorf("%d updates, the state is %+v, want an error %q", n.count()-updates, state, c.want)
				}
				wantNames(t, n, "b1/http")
				s.mu.Lock()
				s.watch = nil
				s.mu.Unlock()
				settle(3 * time.Second)
				if state := n.State(); !state.Reachable {
					t.Errorf("the state is %+v", state)
				}
			})
		})
	}
}
