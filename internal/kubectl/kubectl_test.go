// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/test/await"
)

// fake puts a shell script in place of kubectl, which runs it in a folder of its own.
func fake(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\ncd "+dir+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}

// podText is a pod as kubectl prints it; the state is its container's.
func podText(name, node, state, deleted string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q%s}, "spec": {"nodeName": %q}, "status": {"phase": "Pending"%s}}`, name, deleted, node, state)
}

func states(name, state string) string {
	return fmt.Sprintf(`, "containerStatuses": [{"name": "other", "state": {"running": {}}}, {"name": %q, "state": {%s}}]`, name, state)
}

func TestAgents(t *testing.T) {
	const deleted = `, "deletionTimestamp": "2026-01-02T03:04:05Z"`
	running := states(container, `"running": {"startedAt": "2026-01-02T03:04:05Z"}`)
	crashed := states(container, `"waiting": {"reason": "CrashLoopBackOff"}`)
	dir := fake(t, `printf '%s\n' "$@" >args; cat pods; exit $(cat status)`)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pods := []string{
		podText("c", "n3", crashed, ""), podText("old", "n1", running, deleted), podText("a", "n1", running, ""), podText("failed", "n1", crashed, ""),
		podText("b", "n2", running, deleted), podText("d", "n4", states(container, `"terminated": {"reason": "Error"}`), ""),
		podText("e", "n5", "", ""), podText("x", "", "", ""), podText("y", "", "", ""),
	}
	all := "- pod x: Pending, - pod y: Pending, n1 a, n2 b, n3 pod c: CrashLoopBackOff, n4 pod d: Error, n5 pod e: Pending"
	for name, test := range map[string]struct {
		pods, status string
		nodes        []string
		want         string
	}{
		"all":          {`{"items": [` + strings.Join(pods, ",") + `]}`, "0", nil, all},
		"one node":     {`{"items": [` + strings.Join(pods, ",") + `]}`, "0", []string{"n3"}, "n3 pod c: CrashLoopBackOff"},
		"unknown node": {`{"items": [` + strings.Join(pods, ",") + `]}`, "0", []string{"n1", "n9"}, "node n9 has no agent in namespace balancers"},
		"none":         {`{"items": []}`, "0", nil, "namespace balancers has no agents"},
		"bad JSON":     {`{"items": [`, "0", nil, "kubectl get pods: unexpected end of JSON input"},
		"refused":      {"", "1", nil, "kubectl get pods: exit status 1"},
	} {
		write("pods", test.pods)
		write("status", test.status)
		client := Client{Namespace: "balancers", Context: "other", Kubeconfig: "/tmp/config"}
		agents, err := client.Agents(t.Context(), test.nodes...)
		var found []string
		for _, a := range agents {
			if a.err != nil {
				found = append(found, a.Node+" "+a.err.Error())
			} else {
				found = append(found, a.Node+" "+a.pod)
			}
		}
		got := strings.Join(found, ", ")
		if err != nil {
			got += err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	want := "--namespace=balancers\n--context=other\n--kubeconfig=/tmp/config\nget\npods\n--selector=" + selector + "\n--output=json\n"
	if err != nil || string(args) != want {
		t.Errorf("arguments %q, error %v, want %q", args, err, want)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := (&Client{}).Agents(t.Context()); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("without kubectl: %v", err)
	}
}

// The kubectl that lists pods may have a user log in.
func TestLogin(t *testing.T) {
	fake(t, `echo "the code is 7" >&2; read -r answer; echo "no access for $answer" >&2; exit 1`)
	var said bytes.Buffer
	client := Client{Stdin: strings.NewReader("alice\n"), Stderr: &said}
	_, err := client.Agents(t.Context())
	if err == nil || err.Error() != "kubectl get pods: exit status 1" || said.String() != "the code is 7\nno access for alice\n" {
		t.Errorf("error %v, said %q", err, said.String())
	}
}

// fleet are agents on so many nodes.
func fleet(nodes int) []Agent {
	var agents []Agent
	for i := range nodes {
		agents = append(agents, Agent{Node: fmt.Sprintf("n%d", i+1), pod: fmt.Sprintf("agent-%d", i+1)})
	}
	return agents
}

// Each node has its own output or error, and arguments reach it as they are.
func TestRun(t *testing.T) {
	fake(t, `
case $4 in
pod/agent-1) shift 6; printf '[%s]' "$@";;
pod/agent-2) printf 'fairlead: service "x": not here\ncommand terminated with exit code 1\n' >&2; exit 1;;
pod/agent-3) printf '\n' >&2; exit 7;;
pod/agent-4) exit 0;;
pod/agent-5) echo 'a warning' >&2; echo '[]';;
pod/agent-6) head -c 1000000 /dev/zero | tr '\0' x >&2; exit 1;;
esac`)
	agents := append(fleet(6), Agent{Node: "n7", pod: "agent-7", err: errors.New("pod agent-7: Pending")})
	want := []string{
		"n1 [backends][--output=json][--][-x][a b][$(id)]",
		`n2 error: service "x": not here`,
		"n3 error: exit status 7",
		"n4 ",
		"n5 []\n",
		"n6 error: " + strings.Repeat("x", maxComplaint),
		"n7 error: pod agent-7: Pending",
	}
	client := &Client{Namespace: "a", Timeout: Timeout}
	var got []string
	for _, a := range Run(t.Context(), client, agents, "backends", "--output=json", "--", "-x", "a b", "$(id)") {
		text := a.Node + " " + string(a.Output)
		if a.Err != nil {
			text += "error: " + a.Err.Error()
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A process that prints more than the limit is ended.
func TestTooLong(t *testing.T) {
	fake(t, `exec head -c 1000000000 /dev/zero`)
	got := Run(t.Context(), &Client{Timeout: time.Minute}, fleet(1), "backends")
	if want := fmt.Sprintf("printed more than %d bytes", maxOutput); fmt.Sprint(got[0].Err) != want || got[0].Output != nil {
		t.Errorf("got %v and %d bytes, want %q", got[0].Err, len(got[0].Output), want)
	}
}

// A node that doesn't answer is ended, and delays no other one; so are all of them when the
// user ends the command.
func TestTimeout(t *testing.T) {
	dir := fake(t, `
[ "$4" != pod/agent-2 ] || { echo '[]'; exit; }
trap 'touch ended; exit 1' TERM
touch started
while :; do sleep 0.02; done`)
	got := Run(t.Context(), &Client{Timeout: 3 * time.Second}, fleet(2), "services")
	if want := "pod agent-1: timed out after 3s"; fmt.Sprint(got[0].Err) != want || got[1].Err != nil || !exists(dir, "ended") {
		t.Errorf("got %v and %v, want %q and none", got[0].Err, got[1].Err, want)
	}

	if err := errors.Join(os.Remove(filepath.Join(dir, "ended")), os.Remove(filepath.Join(dir, "started"))); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan []Answer, 1)
	go func() { ended <- Run(ctx, &Client{}, fleet(1), "drain", "service") }()
	await.True(t, "kubectl to start", func() bool { return exists(dir, "started") })
	interrupt()
	if got := <-ended; !errors.Is(got[0].Err, context.Canceled) || !exists(dir, "ended") {
		t.Errorf("got %v, want that it ends", got[0].Err)
	}
}

// Agents are queried side by side, but not all at once.
func TestConcurrency(t *testing.T) {
	dir := fake(t, `touch "running-${4#pod/}"; ls | grep -c ^running; while [ ! -e go ]; do sleep 0.02; done; rm "running-${4#pod/}"`)
	ended := make(chan []Answer, 1)
	go func() { ended <- Run(t.Context(), &Client{}, fleet(concurrent+4), "services") }()
	await.True(t, "some to run", func() bool {
		running, err := filepath.Glob(filepath.Join(dir, "running-*"))
		return err == nil && len(running) == concurrent
	})
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range <-ended {
		if running, err := strconv.Atoi(strings.TrimSpace(string(n.Output))); err != nil || running > concurrent {
			t.Errorf("%s: %s at once, error %v", n.Node, n.Output, n.Err)
		}
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
