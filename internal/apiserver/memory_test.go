// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"fairlead.io/fairlead/test/await"
)

// memoryBound is the largest memory of a server in bytes, whatever clients do.
const memoryBound = 512 << 20

// serverFiles is the environment variable with the folder of serveFiles.
const serverFiles = "FAIRLEAD_TEST_SERVER"

// serveFiles is a server with the files of a folder and default limits.
func serveFiles(folder string) error {
	at := func(name string) string { return filepath.Join(folder, name) }
	return RunWithFile(context.Background(), Data{File: at("data"), Policy: at("policy.yaml")}, Options{
		Listen: "127.0.0.1:0", Files: Files{Tokens: at("tokens.yaml")}, Rate: 50, Log: slog.New(slog.NewJSONHandler(os.Stdout, nil)),
	})
}

// process is a server in a process of its own.
type process struct {
	*testing.T
	pid    int
	url    string
	tokens map[string]string
}

// startServer starts serveFiles with a file that has load balancers, and returns once it answers.
func startServer(t *testing.T, folder string, balancers map[string]string) *process {
	t.Helper()
	p := &process{T: t, tokens: map[string]string{}}
	var lines strings.Builder
	for _, c := range clients {
		token, entry, err := NewToken(c)
		if err != nil {
			t.Fatal(err)
		}
		p.tokens[c.ID] = token
		lines.WriteString(entry.Line())
	}
	writeFile(t, filepath.Join(folder, "tokens.yaml"), lines.String())
	writeFile(t, filepath.Join(folder, "policy.yaml"), anyPolicy)
	s := openEmbedded(t, filepath.Join(folder, "data"), anyPolicy)
	err := s.file.Update(func(tx *bolt.Tx) error {
		for key, text := range balancers {
			if err := tx.Bucket(objectsBucket).Put([]byte(key), []byte(text)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), os.Args[0])
	run.Env, run.Stderr = append(os.Environ(), serverFiles+"="+folder), os.Stderr
	output, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Wait() })
	scanner := bufio.NewScanner(output)
	for p.url == "" && scanner.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.Msg == "serving" {
			p.url = "http://" + line.Address
		}
	}
	if p.url == "" {
		t.Fatal("the server has ended")
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	p.pid = run.Process.Pid
	return p
}

// peak returns the largest memory of the process so far, in bytes.
func (p *process) peak() int64 {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		p.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	kilobytes, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		p.Fatal(err)
	}
	return kilobytes << 10
}

// send sends a request, and returns the status code after the answer has been read.
func (p *process) send(client, method, path, body string) (int, error) {
	r, err := http.NewRequestWithContext(p.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+p.tokens[client])
	r.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// largeSpec is a specification of 650 KB: pools that no listener uses.
var largeSpec = sync.OnceValue(func() string {
	pools := make([]string, 64)
	for i := range pools {
		members := make([]string, 256)
		for j := range members {
			members[j] = fmt.Sprintf(`{"address":"10.0.%d.%d","port":80,"weight":1}`, i, j)
		}
		pools[i] = fmt.Sprintf(`{"members":[%s],"name":"p%d","sessionAffinity":"None"}`, strings.Join(members, ","), i)
	}
	return `{"forward":"nat","pools":[` + strings.Join(pools, ",") + `]}`
})

// largeBalancers are stored load balancers of 650 KB each.
func largeBalancers(project string, n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s/large%02d", project, i)] = fmt.Sprintf(
			`{"apiVersion":"fairlead.io/v1alpha1","kind":"LoadBalancer","metadata":{"creationTimestamp":"2026-01-01T00:00:%02dZ","generation":1,`+
				`"name":"large%02d","namespace":%q,"resourceVersion":"%d","uid":"%d"},"spec":%s}`, i%60, i, project, i+1, i+1, largeSpec())
	}
	return all
}

// A server with large load balancers, which nodes don't serve, starts in bounded memory. Many expensive
// requests at once don't take more, and it answers others meanwhile, and expensive ones afterwards.
func TestMemory(t *testing.T) {
	p := startServer(t, t.TempDir(), largeBalancers("web", 39))
	started := p.peak()
	if got, err := p.send("other", "PUT", "/v1/projects/other/loadbalancers/lb", `{"forward":"nat"}`); got != 201 || err != nil {
		t.Fatalf("status %d, %v", got, err)
	}
	var running, others sync.WaitGroup
	var statuses [600]atomic.Int64
	for i := range 100 {
		for client, request := range map[string][3]string{
			"reader": {"GET", base + "?limit=500", ""},
			"web":    {"PUT", fmt.Sprintf("%s/large%02d", base, i%39), strings.Replace(largeSpec(), `"weight":1`, `"weight":2`, 1)},
		} {
			running.Go(func() {
				got, err := p.send(client, request[0], request[1], request[2])
				if err != nil && got == 0 {
					t.Errorf("%s: %v", request[0], err)
				}
				statuses[got].Add(1)
			})
		}
	}
	done := make(chan struct{})
	var longest time.Duration
	count := 0
	others.Go(func() {
		for ; ; count++ {
			began := time.Now()
			if got, err := p.send("other", "GET", "/v1/projects/other/loadbalancers/lb", ""); got != 200 || err != nil {
				t.Errorf("another project: status %d, %v", got, err)
				return
			}
			longest = max(longest, time.Since(began))
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	running.Wait()
	close(done)
	others.Wait()
	for status := range statuses {
		if n := statuses[status].Load(); n > 0 && status != 200 && status != 429 && status != 503 {
			t.Errorf("%d answers with the status %d", n, status)
		}
	}
	if statuses[200].Load()+statuses[503].Load() == 0 {
		t.Error("all requests were refused at once")
	}
	// On a busy machine each may have waited for processors longer than storeTimeout.
	await.True(t, "an expensive request to be answered", func() bool {
		got, err := p.send("reader", "GET", base+"?limit=500", "")
		return got == 200 && err == nil
	})
	t.Logf("%d MB after the start, %d MB in all; %d of 200 requests refused; the longest of %d other requests took %s",
		started>>20, p.peak()>>20, statuses[429].Load(), count, longest)
	if got := p.peak(); got > memoryBound {
		t.Errorf("the server took %d MB", got>>20)
	}
}

// A project stores a bounded number of members and bytes, whether or not nodes serve them.
func TestProjectSize(t *testing.T) {
	const policy = anyPolicy + "services: {perNamespace: {services: 100, backends: 400, sourcePrefixes: 100}}\n"
	a := newAPIOf(t, openEmbedded(t, filepath.Join(t.TempDir(), "data"), policy), 1)
	members := make([]string, 256)
	for i := range members {
		members[i] = fmt.Sprintf(`{"address":"10.0.0.%d","port":80}`, i)
	}
	unused := `{"forward":"nat","pools":[{"name":"p","members":[` + strings.Join(members, ",") + `]}]}`
	a.must(201, "web", "PUT", base+"/a", unused)
	got := a.must(403, "web", "PUT", base+"/b", unused).body
	if !strings.Contains(got, "512 members: more than 400 (policy, services.perNamespace.backends)") {
		t.Errorf("too many members: %s", got)
	}
	a.must(201, "other", "PUT", "/v1/projects/other/loadbalancers/b", unused)
	a.must(200, "web", "PUT", base+"/a/pools/p/members/10.0.0.1:80", `{"weight":2}`)
	a.must(204, "web", "DELETE", base+"/a/pools/p", "")
	label := strings.Repeat("x", 63)
	labels := make([]string, 500)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"%s%04d":"%s"`, label[:59], i, label)
	}
	labelled := `{"forward":"nat","labels":{` + strings.Join(labels, ",") + `}}`
	last := 201
	for i := 0; last == 201 && i < 20; i++ {
		answer := a.do(0, "web", "PUT", fmt.Sprintf("%s/l%d", base, i), labelled)
		last, got = answer.status, answer.body
	}
	if last != 403 || !strings.Contains(got, "bytes: more than 620800") {
		t.Errorf("too many bytes: status %d: %s", last, got)
	}
	for i := range 12 { // versions get longer, but nothing that the client writes
		a.must(200, "web", "PUT", base+"/l0", strings.Replace(labelled, "xx", fmt.Sprintf("%02d", i), 1))
	}
	a.must(204, "web", "DELETE", base+"/l0", "")
	a.must(201, "web", "PUT", base+"/again", labelled)
}
