// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/test/fuzzrand"
)

// followerModel is the state that a node has received.
type followerModel struct {
	synced string
	// versions are the resourceVersions of objects, by project/name.
	versions map[string]int
	last     int
	lines    int
}

// read reads lines, and returns an error if they break the protocol.
func (m *followerModel) read(text []byte) error {
	for raw := range strings.Lines(string(text)) {
		var l struct {
			Type    string
			Object  v1alpha1.LoadBalancer
			Version string
		}
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			return fmt.Errorf("%s: %w", raw, err)
		}
		m.lines++
		key := l.Object.Namespace + "/" + l.Object.Name
		version, _ := strconv.Atoi(l.Object.ResourceVersion)
		switch {
		case l.Type == lineAlive:
		case l.Type == lineSynced && m.synced == "":
			m.synced = l.Version
			m.last, _ = strconv.Atoi(l.Version)
		case l.Type == linePut && m.synced == "" && m.versions[key] == 0:
			m.versions[key] = version
		case l.Type == linePut && m.synced != "" && version > m.last:
			m.versions[key], m.last = version, version
		case l.Type == lineDelete && m.synced != "" && version > m.last:
			m.last = version
			delete(m.versions, key)
		default:
			return fmt.Errorf("unexpected line %s", raw)
		}
	}
	return nil
}

// stored returns the resourceVersions of all objects of some projects.
func stored(t testing.TB, s Store, projects ...string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, project := range projects {
		list, err := s.List(t.Context(), project, Page{Labels: labels.Everything(), Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range list.Items {
			object, _, err := decodeHead(text)
			if err != nil {
				t.Fatal(err)
			}
			all[project+"/"+object.GetName()], _ = strconv.Atoi(object.GetResourceVersion())
		}
	}
	return all
}

var errDone = errors.New("the last object has come")

// Nodes that follow while clients write, some of them slow, have the objects that are stored in the
// end. Each gets all objects first, and then changes in their order.
func TestFollow(t *testing.T) {
	store := newEmbedded(t)
	a := newAPIOf(t, store, 1)
	seed := fuzzrand.Seed(t)
	projects := []string{"web", "other"}
	progress := make(chan struct{}, 1) // slow nodes read on once others have written
	write := func(r *rand.Rand, n int) {
		for range n {
			project := projects[r.IntN(2)]
			path := fmt.Sprintf("/v1/projects/%s/loadbalancers/lb%d", project, r.IntN(12))
			if r.IntN(3) == 0 {
				a.do(0, project, "DELETE", path, "")
			} else if got := a.do(0, project, "PUT", path, fmt.Sprintf(`{"forward":"nat","firewallMark":%d}`, 1+r.IntN(1000))); got.status >= 300 && got.status != 409 {
				t.Errorf("status %d: %s", got.status, got.body)
			}
			select {
			case progress <- struct{}{}:
			default:
			}
		}
	}
	write(rand.New(rand.NewPCG(seed, 0)), 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var writers, followers sync.WaitGroup
	models := make([]followerModel, 4)
	for i := range models {
		m := &models[i]
		m.versions = map[string]int{}
		followers.Go(func() {
			if err := store.Follow(ctx, func(text []byte) error {
				if i%2 == 1 {
					<-progress
				}
				if err := m.read(text); err != nil || m.versions["web/end"] == 0 {
					return err
				}
				return errDone
			}); !errors.Is(err, errDone) {
				t.Error(err)
			}
		})
	}
	for i := range 4 {
		writers.Go(func() { write(rand.New(rand.NewPCG(seed, uint64(i)+1)), 40) })
	}
	writers.Wait()
	a.must(201, "web", "PUT", base+"/end", `{"forward":"nat"}`)
	close(progress)
	followers.Wait()
	want := stored(t, store, projects...)
	for i := range models {
		if m := &models[i]; !maps.Equal(m.versions, want) {
			t.Errorf("node %d has %v after %d lines, want %v", i, m.versions, m.lines, want)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Follow(t.Context(), nil); err == nil {
		t.Error("a node follows a closed store")
	}
	if len(store.followers.all) > 0 {
		t.Errorf("%d followers are left", len(store.followers.all))
	}
}

// follow begins to follow a store.
func follow(t *testing.T, store *embeddedStore) *follower {
	t.Helper()
	f, err := store.follow()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func nextLines(t *testing.T, store *embeddedStore, f *follower) string {
	t.Helper()
	lines, err := store.lines(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(lines)
}

// Only initial objects precede SYNCED, each in its version at the time it is sent. No deletion is
// sent of an object that the node never received.
func TestFollowFirst(t *testing.T) {
	store := newEmbedded(t)
	a := newAPIOf(t, store, 1)
	for _, name := range []string{"/a", "/b", "/c"} {
		a.must(201, "web", "PUT", base+name, `{"forward":"nat"}`)
	}
	f := follow(t, store)
	a.must(201, "web", "PUT", base+"/d", `{"forward":"nat"}`)
	a.must(200, "web", "PUT", base+"/a", `{"forward":"nat","firewallMark":1}`)
	a.must(204, "web", "DELETE", base+"/b", "")
	var got []string
	for range 3 {
		for raw := range strings.Lines(nextLines(t, store, f)) {
			var l struct {
				Type, Version string
				Object        v1alpha1.LoadBalancer
			}
			if err := json.Unmarshal([]byte(raw), &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.Trim(strings.Join([]string{l.Type, l.Object.Name, l.Object.ResourceVersion, l.Version}, " "), " "))
		}
		a.must(204, "web", "DELETE", base+"/c", "")
		a.must(201, "web", "PUT", base+"/c", `{"forward":"nat"}`)
	}
	if want := []string{"PUT a 5", "PUT c 3", "SYNCED   3", "PUT d 4", "PUT c 8", "PUT c 10"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// watchOver runs a test in a bubble, with a connection of a node that has requested to follow an API,
// and the response unread.
func watchOver(t *testing.T, test func(a *api, store *embeddedStore, node net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		store := newEmbedded(t)
		a := newAPIOf(t, store, 1)
		ctx, stop := context.WithCancel(t.Context())
		listener, ended := make(pipes), make(chan error, 1)
		served := httpd.Server{Name: "API", Handler: a.servers[0], Connections: 8, Log: slog.New(slog.DiscardHandler)}
		go func() { ended <- served.Serve(ctx, listener) }()
		node, far := net.Pipe()
		listener <- far
		if _, err := fmt.Fprintf(node, "GET %s HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\n\r\n", watchPath, a.tokens["node"]); err != nil {
			t.Fatal(err)
		}
		test(a, store, node)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		node.Close()
	})
}

// lines returns the lines that a node gets until its connection ends.
func linesOf(t testing.TB, node net.Conn) (lines []string) {
	response, err := http.ReadResponse(bufio.NewReader(node), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	return lines
}

// A connection without changes has a line every 10 seconds, however long it lasts, and ends soon
// after the node's credentials are no longer valid.
func TestWatchKeepalive(t *testing.T) {
	watchOver(t, func(a *api, store *embeddedStore, node net.Conn) {
		time.AfterFunc(35*time.Second, func() { a.servers[0].(*server).keys.current.Store(&credentials{}) })
		began := time.Now()
		lines := linesOf(t, node)
		const alive = `{"type":"ALIVE"}`
		if want := []string{`{"type":"SYNCED","version":"0","identity":"` + store.identity + `"}`, alive, alive, alive}; !slices.Equal(lines, want) || time.Since(began) != 40*time.Second {
			t.Errorf("%q after %s, want %q", lines, time.Since(began), want)
		}
	})
}

// A node that doesn't read is cut off after a while. It delays no client, and needs no memory for
// each change.
func TestWatchSlowNode(t *testing.T) {
	watchOver(t, func(a *api, store *embeddedStore, _ net.Conn) {
		synctest.Wait() // it follows
		for i := range 100 {
			want := 200
			if i == 0 {
				want = 201
			}
			a.must(want, "web", "PUT", base+"/lb", fmt.Sprintf(`{"forward":"nat","firewallMark":%d}`, i+1))
		}
		pending := func() (followers, changes int) {
			store.followers.mu.Lock()
			defer store.followers.mu.Unlock()
			for f := range store.followers.all {
				changes += len(f.pending)
			}
			return len(store.followers.all), changes
		}
		synctest.Wait()
		if followers, changes := pending(); followers != 1 || changes != 1 {
			t.Errorf("%d followers with %d changes, want 1 and 1", followers, changes)
		}
		time.Sleep(sendTimeout + time.Second)
		synctest.Wait()
		if followers, _ := pending(); followers != 0 {
			t.Errorf("%d followers after %s", followers, sendTimeout)
		}
	})
}

// Reports count for three minutes, also if the node's counters arrive.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newEmbedded(t)
		a := newAPIOf(t, store, 1)
		write := func(node, kind, body string) int {
			return a.do(0, "node", "PUT", strings.Replace(nodePath, "{node}", node, 1)+kind, body).status
		}
		// nodes returns the known nodes, with "!" those without a report.
		nodes := func() string {
			all, err := store.Reports(t.Context(), defaultGroup)
			if err != nil {
				t.Fatal(err)
			}
			var known []string
			for node, status := range all {
				if status == nil {
					node += "!"
				}
				known = append(known, node)
			}
			slices.Sort(known)
			return strings.Join(known, " ")
		}
		for body, want := range map[string]int{
			reported: 204, strings.Replace(reported, `{`, `{"newer":1,`, 1): 204, `{}`: 422, `[]`: 400,
			strings.Replace(reported, `"total":1`, `"total":"1"`, 1): 422, strings.Replace(reported, "xdp", strings.Repeat("x", 65), 1): 422,
		} {
			if got := write("n1", "/report", body); got != want {
				t.Errorf("%s: status %d, want %d", body, got, want)
			}
		}
		write("n3", "/report", reported)
		time.Sleep(reportLifetime - time.Second)
		write("n2", "/report", reported)
		write("n3", "/statistics", reported)
		write("n3", "/report", `{}`) // rejected
		if got := nodes(); got != "n1 n2 n3" {
			t.Errorf("nodes %s", got)
		}
		time.Sleep(time.Second)
		if got := nodes(); got != "n2 n3!" {
			t.Errorf("after %s: nodes %s", reportLifetime, got)
		}
	})
}
