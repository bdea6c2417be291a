// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// The VIPs of every lab.
const (
	vip4 = "10.1.1.1"
	vip6 = "fd00:10:1:1::1"
)

// patience is how long a condition may take that should hold in a moment: long
// enough for a busy machine.
const patience = 10 * time.Second

// lab is a topology that is up.
type lab struct {
	*netlab.Lab
	topology netlab.Topology
}

// ecmp is the lab "ecmp" with three balancers and four servers.
func ecmp(t *testing.T, forward lb.Forward) netlab.Topology {
	t.Helper()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Fairlead: "fairlead", Forward: forward, Balancers: 3, Servers: 4})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// bringUp builds a lab that is taken down when the test ends. The label tells
// apart the labs of this process.
func bringUp(t *testing.T, label string, topology netlab.Topology) *lab {
	t.Helper()
	needRoot(t)
	labs := netlab.Labs{Dir: t.TempDir()}
	up, err := labs.Up(t.Context(), labName(label), topology)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{up, topology}
	t.Cleanup(func() {
		if t.Failed() {
			l.logAgents(t)
		}
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// labName returns a name that no other test run on this machine uses.
func labName(label string) string { return fmt.Sprintf("e2e-%d-%s", os.Getpid(), label) }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	lookAtSources(t)
}

// lookAtSources tells "go test", which remembers the files that a test has
// looked at, that a result is outdated when the executable would be another.
func lookAtSources(t *testing.T) {
	t.Helper()
	for _, root := range []string{"../../go.mod", "../../cmd", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // somebody else's temporary file
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hosts returns those of a role by name.
func (l *lab) hosts(role netlab.Role) []netlab.HostState {
	return slices.DeleteFunc(l.State().Hosts, func(h netlab.HostState) bool { return h.Role != role })
}

// process is what the topology runs in a host under that name.
func (l *lab) process(t *testing.T, host, name string) netlab.Process {
	t.Helper()
	processes := l.topology.Host(host).Processes
	i := slices.IndexFunc(processes, func(p netlab.Process) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("%s runs no %s", host, name)
	}
	return processes[i]
}

// run runs a command in a host and returns what it printed. It has to end well.
func (l *lab) run(t *testing.T, host string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Dir = l.State().Host(host).Directory
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := l.Do(host, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%s: %q: %v: %s", host, args, err, &stderr)
	}
	return stdout.String()
}

func (l *lab) logAgents(t *testing.T) {
	for _, h := range l.hosts(netlab.Balancer) {
		text, err := os.ReadFile(filepath.Join(h.Directory, "agent.log"))
		t.Logf("%s: %v\n%s", h.Name, err, text)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !within(patience, holds) {
		t.Fatalf("waited in vain until %s", what)
	}
}

// within reports whether a condition holds before the time is over.
func within(limit time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(limit); !holds(); {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// fairlead runs the executable and returns its exit status and what it printed.
func fairlead(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	// Not the test's context: cleaning up comes after its end.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "fairlead", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// show runs a command of the executable that has to end well.
func show(t *testing.T, args ...string) string {
	t.Helper()
	status, stdout, stderr := fairlead(t, args...)
	if status != 0 {
		t.Fatalf("fairlead %s: status %d: %s", strings.Join(args, " "), status, stderr)
	}
	return stdout
}
