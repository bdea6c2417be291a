// SPDX-License-Identifier: Apache-2.0

// Package harness brings up the labs of the end-to-end tests and has their packages'
// common operations: it configures agents, sends requests, and counts packets.
//
// Each test has labs of its own, in a directory of its own, and takes them down.
// Packet counts are read from the kernels of the namespaces (packets.go), Fairlead's
// reports from its control sockets (agent.go).
package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// The VIPs of every lab.
const (
	VIP4 = "10.1.1.1"
	VIP6 = "fd00:10:1:1::1"
)

// EachFamily runs a test for the VIP of each address family.
func EachFamily(t *testing.T, test func(t *testing.T, vip string)) {
	for family, vip := range map[string]string{"ipv4": VIP4, "ipv6": VIP6} {
		t.Run(family, func(t *testing.T) { test(t, vip) })
	}
}

// commandLimit is how long a command may take: benches have a lab, and traffic in it.
const commandLimit = 5 * time.Minute

// Lab is a topology that is up.
type Lab struct {
	*netlab.Lab
	Drawn
}

// ECMP is the lab "ecmp" with three balancers and four servers.
func ECMP(t *testing.T, forward lb.Forward) netlab.Topology {
	t.Helper()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, Balancers: 3, Servers: 4})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// BringUp builds a lab that is taken down when the test ends.
func BringUp(t *testing.T, label string, topology netlab.Topology) *Lab {
	t.Helper()
	NeedRoot(t)
	labs := netlab.Labs{Dir: t.TempDir()}
	up, err := labs.Up(t.Context(), LabName(label), topology)
	if err != nil {
		t.Fatal(err)
	}
	return Adopt(t, up, topology)
}

// Adopt has a lab that is up taken down when the test ends.
func Adopt(t *testing.T, up *netlab.Lab, topology netlab.Topology) *Lab {
	t.Helper()
	l := &Lab{up, Drawn{topology}}
	t.Cleanup(func() {
		checkRaces(t, l)
		if t.Failed() {
			logAgents(t, l)
		}
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, h := range append(l.Hosts(netlab.Client), l.Hosts(netlab.Server)...) {
		l.Sysctl(t, h.Name, "ipv4/tcp_wmem", SendBuffer)
	}
	return l
}

// SendBuffer are the sizes of a TCP socket's send buffer. A veth interface holds 256
// frames, and drops more while a busy machine doesn't run its NAPI. With the default,
// 4 MiB, one connection sends more than that in a round trip; with 16 KiB, which the
// kernel exceeds by a write of 64 KiB, it's 64 frames.
const SendBuffer = "4096 16384 16384"

// Sysctl writes a file below /proc/sys/net in a host.
func (l *Lab) Sysctl(t *testing.T, host, name, value string) {
	t.Helper()
	err := l.Do(host, func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
}

// LabName returns a name that is unique on this machine, also if tests choose the same label.
func LabName(label string) string {
	return fmt.Sprintf("e2e-%d-%d-%s", os.Getpid(), labCount.Add(1), label)
}

// labCount numbers the labs of this process.
var labCount atomic.Int64

// NeedRoot skips a test that is not run by root.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if err := statExecutables(); err != nil {
		t.Fatal(err)
	}
}

// statExecutables makes results of "go test" outdated when the executables are others: it
// remembers which files a test has looked at. Without executables it looks at their sources.
var statExecutables = sync.OnceValue(func() error {
	if dir := os.Getenv(binEnv); dir != "" {
		_, err := os.Stat(filepath.Join(dir, "fairlead"))
		_, labErr := os.Stat(filepath.Join(dir, "fairlab"))
		return errors.Join(err, labErr)
	}
	const top = "../../.."
	for _, root := range []string{"go.mod", "cmd", "internal", "lab"} {
		err := filepath.WalkDir(filepath.Join(top, root), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a temporary file of another process
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
})

// Run runs a command in a host, which has to succeed, and returns its output.
func (l *Lab) Run(t *testing.T, host string, args ...string) string {
	t.Helper()
	output, err := l.Lab.Run(t.Context(), host, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// checkRaces reports data races that agents were built to find and have found.
func checkRaces(t *testing.T, l *Lab) {
	for _, h := range l.State().Hosts {
		logs, err := filepath.Glob(filepath.Join(h.Directory, "*.log"))
		if err != nil {
			t.Error(err)
		}
		for _, name := range logs {
			text, err := os.ReadFile(name)
			if _, race, found := strings.Cut(string(text), "WARNING: DATA RACE"); found || err != nil {
				t.Errorf("%s: %v: data race:%s", name, err, race[:min(len(race), 4000)])
			}
		}
	}
}

// logAgents logs the logs and counters of a lab's agents.
func logAgents(t *testing.T, l *Lab) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience) // the test's is over
	defer cancel()
	for _, h := range l.Hosts(netlab.Balancer) {
		text, err := os.ReadFile(filepath.Join(h.Directory, "agent.log"))
		t.Logf("%s: %v\n%s", h.Name, err, text)
		var status observe.Status
		if text, err = control.Dial(h.Socket).Status(ctx); err == nil {
			err = json.Unmarshal(text, &status)
		}
		t.Logf("%s: exits: %v %+v", h.Name, err, status.Exits)
	}
}

// Until waits for a condition.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !await.Holds(holds) {
		t.Fatalf("timeout waiting until %s", what)
	}
}

// Retried reports that a test repeats a step because the machine was too busy for it.
// scripts/test.sh lists such reports at its end, so that a retry hides nothing.
func Retried(t *testing.T, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	t.Log("retried: " + text)
	t.Attr("retried", text)
}

// Fairlead runs fairlead, or fairlab for its commands, and returns exit status and
// output.
func Fairlead(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	// Not the test's context: cleaning up comes after its end.
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	program := "fairlead"
	if slices.Contains([]string{"lab", "bench", "demo"}, args[0]) {
		program = "fairlab"
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // a bench ends its lab
	cmd.WaitDelay = await.Patience
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Show runs a command of fairlead or fairlab that has to succeed.
func Show(t *testing.T, args ...string) string {
	t.Helper()
	status, stdout, stderr := Fairlead(t, args...)
	if status != 0 {
		t.Fatalf("%s: status %d: %s", strings.Join(args, " "), status, stderr)
	}
	return stdout
}

// PagePort is the default port of the status page.
const PagePort = "9571"

// The server that the tests change, and its addresses.
const (
	Moved  = "server1"
	Moved4 = "10.0.2.101"
	Moved6 = "fd00:2::101"
)

// Link changes an interface of a host.
func Link(t *testing.T, l *Lab, host, name string, change func(netlink.Link) error) {
	t.Helper()
	err := l.Do(host, func() error {
		link, err := netlink.LinkByName(name)
		return errors.Join(err, change(link))
	})
	if err != nil {
		t.Fatalf("%s: interface %s: %v", host, name, err)
	}
}
