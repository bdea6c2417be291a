// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/agent"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/source/node"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

const testConfig = `node:
  name: lb1
  interfaces: [eth0]
services:
  - name: web
    address: 10.1.1.1
    port: 80
    protocol: tcp
    forward: l2dsr
    backends:
      - {address: 10.0.0.21, port: 80, weight: 1}
      - {address: 10.0.0.22, port: 80, weight: 1}
`

// webVIP is the VIP of the service in testConfig.
var webVIP = lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}

// testAgent is an agent on the fake data plane, in this process.
type testAgent struct {
	t            *testing.T
	dp           *dataplanetest.Fake
	path, socket string
	log          syncBuffer
	// terminate is closed to drain it.
	terminate chan struct{}
	// stop ends the agent and returns its run's error.
	stop func() error
	// wired is to be looked at after stop only.
	wired *agent.Agent
}

// fakePlane is the fake data plane of an agent.
type fakePlane struct {
	*dataplanetest.Fake
	health.DirectPaths
	attach func() error
	// discarded has the prefixes that Discard was called with.
	discarded chan []netip.Prefix
}

func (fakePlane) Prepare([]*lb.Service) {}

func (p fakePlane) Attach(context.Context) error { return p.attach() }

func (fakePlane) KeepAttached(context.Context, func(error)) {}

func (fakePlane) Describe() observe.DataPlane {
	return observe.DataPlane{Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}}}
}

func (p fakePlane) Discard(prefixes []netip.Prefix) error {
	p.discarded <- prefixes
	return nil
}

func (fakePlane) Refused() <-chan dataplane.Refusal { return nil }

// syncBuffer is a buffer that is written and read at the same time.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startAgent runs an agent with testConfig until the test ends, and returns
// when it is ready.
func startAgent(t *testing.T) *testAgent {
	t.Helper()
	a := launchAgent(t, testConfig, nil, func() error { return nil })
	a.await("msg=ready", 1)
	return a
}

// launchAgent runs an agent until the test ends. It is ready when attach has
// returned.
func launchAgent(t *testing.T, text string, speaker agent.Speaker, attach func() error) *testAgent {
	t.Helper()
	dir := t.TempDir()
	a := &testAgent{t: t, dp: dataplanetest.NewFake(), terminate: make(chan struct{}), path: filepath.Join(dir, "fairlead.yaml"), socket: filepath.Join(dir, "agent.sock")}
	a.write(text)
	settings, err := config.Open(a.path, a.logger(), config.Parser(dataplanetest.Limits()))
	if err != nil {
		t.Fatal(err)
	}
	a.launch(node.File{Source: settings, Log: slog.New(slog.DiscardHandler)}, speaker, attach)
	return a
}

func (a *testAgent) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&a.log, nil)) }

// launch runs an agent with a scripted source.
func (a *testAgent) launch(source agent.Source, speaker agent.Speaker, attach func() error) {
	t, log := a.t, a.logger()
	t.Helper()
	claim, err := control.ClaimSocket(a.socket)
	if err != nil {
		t.Fatal(err)
	}
	page, err := web.Listen(netip.MustParseAddrPort("127.0.0.1:0"), true, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	wired := agent.New(agent.Config{
		Started: time.Now(), Source: source, Page: page, Speaker: speaker, Events: observe.NewRecorder(log), Log: log,
		Drains: store.DrainsPath(a.socket), Verdicts: store.VerdictsPath(a.socket),
		Plane: fakePlane{Fake: a.dp, attach: attach, discarded: make(chan []netip.Prefix, 100)},
	})
	// Also without BGP: an earlier agent may have announced aggregates.
	if plane := wired.Plane.(fakePlane); len(plane.discarded) != 1 || len(<-plane.discarded) != 0 {
		t.Error("the agent begins with aggregates, or with those of an earlier one")
	}
	a.wired = wired
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- wired.Run(ctx, claim, a.terminate) }()
	a.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, a.dp.Close(), claim.Release())
	})
	t.Cleanup(func() {
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// write replaces the configuration at once, as editors do.
func (a *testAgent) write(text string) {
	a.t.Helper()
	if err := os.WriteFile(a.path+".new", []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(a.path+".new", a.path); err != nil {
		a.t.Fatal(err)
	}
}

// await waits until the log has a text so many times.
func (a *testAgent) await(text string, times int) {
	a.t.Helper()
	until(a.t, fmt.Sprintf("the log has %q %d times", text, times), func() bool {
		return strings.Count(a.log.String(), text) >= times
	})
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(await.Patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// command runs a command line and returns its exit status and output.
func command(line ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := env{stdout: &out, stderr: &errs}
	status = run(newRootCommand(e), line, e)
	return status, out.String(), errs.String()
}

// show runs a command that has to end well.
func (a *testAgent) show(line ...string) string {
	a.t.Helper()
	status, stdout, stderr := command(append(line, "--socket", a.socket)...)
	if status != 0 || stderr != "" {
		a.t.Fatalf("%q: status %d, %s", line, status, stderr)
	}
	return stdout
}

// shows runs a command that has to end well, and checks that its output has these texts.
func (a *testAgent) shows(line string, texts ...string) {
	a.t.Helper()
	got := a.show(strings.Fields(line)...)
	for _, want := range texts {
		if !strings.Contains(got, want) {
			a.t.Errorf("%s: want %q in:\n%s", line, want, got)
		}
	}
}

// decodes runs a command that has to end well, and reads its output.
func (a *testAgent) decodes(line string, into any) {
	a.t.Helper()
	if answer := a.show(append(strings.Fields(line), "-o", "json")...); json.Unmarshal([]byte(answer), into) != nil {
		a.t.Errorf("%s: bad answer %q", line, answer)
	}
}

// fails runs a command that has to end with status 1, and an error that matches a pattern.
func (a *testAgent) fails(line, pattern string) {
	a.t.Helper()
	status, stdout, stderr := command(append(strings.Fields(line), "--socket", a.socket)...)
	if status != 1 || stdout != "" || !regexp.MustCompile(pattern).MatchString(stderr) {
		a.t.Errorf("%s: status %d, prints %q and %q, want status 1 and %q", line, status, stdout, stderr, pattern)
	}
}

func TestAgentIsShown(t *testing.T) {
	a := startAgent(t)
	a.dp.Probe(webVIP, netip.MustParseAddrPort("192.0.2.1:1000"))

	a.shows("status", "node        lb1\n", "services    1: 1 programmed, 0 failed\n", "eth0 native\n", "\nforward  1 ")
	a.shows("services", "web      tcp 10.1.1.1:80  l2dsr    2/2")
	if backends := a.show("backends", "web"); strings.Count(backends, "tcp 10.1.1.1:80") != 2 {
		t.Errorf("backends:\n%s", backends)
	}
	a.fails("backends nosuch", `"nosuch"`)
	var list []observe.Backend
	if a.decodes("backends", &list); len(list) != 2 {
		t.Errorf("%d backends, want two", len(list))
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	a.fails("status", "^fairlead: no agent at "+a.socket+": ")
	if a.dp.Dump() == "" {
		t.Error("a stopped agent's data plane balances nothing")
	}
}

func TestAgentReloads(t *testing.T) {
	a := startAgent(t)
	a.write(strings.Replace(testConfig, "10.0.0.22, port: 80, weight: 1", "10.0.0.23, port: 80, weight: 2", 1))
	a.show("reload")
	if dump := a.dp.Dump(); !strings.Contains(dump, "10.0.0.23:80 weight 2") || strings.Contains(dump, "10.0.0.22") {
		t.Errorf("reload returned before the change was programmed:\n%s", dump)
	}

	before := a.dp.Dump()
	a.write(strings.ReplaceAll(testConfig, "weight: 1", "weight: 1000"))
	status, _, stderr := command("reload", "--socket", a.socket)
	if status != 1 || strings.Count(stderr, "out of range") != 2 || !strings.Contains(stderr, "fairlead.yaml:12:") {
		t.Errorf("a bad file: status %d, want 1 and both errors:\n%s", status, stderr)
	}
	a.shows("status", "the loaded one stays in force")
	if after := a.dp.Dump(); after != before {
		t.Errorf("a bad file changed\n%s\nto\n%s", before, after)
	}

	// Whatever saw the bad file first, SIGHUP reports it once more.
	seen := strings.Count(a.log.String(), "configuration rejected")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	a.await("configuration rejected", seen+2)
	a.write(testConfig)
	until(t, "the good file is programmed", func() bool { return strings.Contains(a.dp.Dump(), "10.0.0.22") })
}

// A drained backend is out of the ring when the command returns, and its flows are
// counted.
func TestAgentDrains(t *testing.T) {
	a := startAgent(t)
	id := netip.MustParseAddrPort("10.0.0.21:80")
	a.dp.SetFlows(webVIP, id, 3)
	if said := a.show("drain", "backend", "web", "10.0.0.21"); !strings.HasPrefix(said, "web 10.0.0.21:80: 3 flows left") {
		t.Errorf("drain says %q", said)
	}
	if dump := a.dp.Dump(); !strings.Contains(dump, "10.0.0.21:80 weight 0 out: drained") {
		t.Errorf("drain returned before it was programmed:\n%s", dump)
	}
	var drains []observe.Drain
	if a.decodes("drains", &drains); len(drains) != 1 || drains[0].Flows != 3 {
		t.Errorf("drains %+v", drains)
	}
	wait := []string{"drain", "backend", "web", "10.0.0.21:80", "--wait", "--settle", "0s", "--socket", a.socket, "--timeout"}
	if code, _, stderr := command(append(wait, "10ms")...); code != 1 || stderr != "fairlead: web 10.0.0.21:80: flows are left after 10ms\n" {
		t.Errorf("waiting without an end: status %d, %s", code, stderr)
	}
	a.dp.SetFlows(webVIP, id, 0)
	if code, stdout, stderr := command(append(wait, "10s")...); code != 0 || !strings.Contains(stdout, ": 0 flows left") {
		t.Errorf("waiting: status %d, %s%s", code, stdout, stderr)
	}
	a.show("drain", "service", "web")
	a.show("drain", "node")
	a.shows("services", "0/2", "drained")
	a.shows("status", "draining", "1 drained")
	if table := a.show("drains"); strings.Count(table, "\n") != 4 {
		t.Errorf("drains:\n%s", table)
	}
	a.show("undrain", "backend", "web", "10.0.0.21")
	a.show("undrain", "service", "web")
	a.show("undrain", "node")
	if dump := a.dp.Dump(); strings.Contains(dump, "out:") {
		t.Errorf("undrain returned before it was programmed:\n%s", dump)
	}
	a.fails("drain service nosuch", `^fairlead: service "nosuch": not in the configuration\n$`)
	a.fails("undrain backend web 10.0.0.99", "^fairlead: backend web 10.0.0.99: not in the configuration\n$")
}

// SIGTERM drains the node; an agent whose VIPs get no packets ends soon.
func TestAgentTerminates(t *testing.T) {
	a := startAgent(t)
	close(a.terminate)
	a.await(`msg="node drained"`, 1)
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(a.log.String(), `msg="node draining"`) {
		t.Errorf("the log doesn't say that the node drains:\n%s", &a.log.text)
	}
}
