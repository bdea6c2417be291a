// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// victim is set in the environment of a test that is to be killed.
const victim = "FAIRLEAD_CLUSTER_VICTIM"

// Of a run that is killed no process survives, and the next removes its files and
// control groups.
func TestKilledRunLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	if os.Getenv(victim) != "" {
		fmt.Println(victim, cluster.Start(t, cluster.Options{Nodes: 1}).Dir())
		<-t.Context().Done()
	}
	run := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	run.Env = append(os.Environ(), victim+"=1")
	run.Stderr = os.Stderr
	said, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	dir := ""
	for lines := bufio.NewScanner(said); dir == "" && lines.Scan(); {
		_, dir, _ = strings.Cut(lines.Text(), victim+" ")
	}
	if traces(t, dir).processes < 10 {
		t.Errorf("%s: got %+v, want a cluster", dir, traces(t, dir))
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait() // reports the signal
	cluster.Await(t, "the end of all processes", func() error {
		if n := traces(t, dir).processes; n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	if err := cluster.Sweep(); err != nil {
		t.Error(err)
	}
	if left := traces(t, dir); left != (trace{}) {
		t.Errorf("left are %+v", left)
	}
}

// trace counts the traces of a cluster.
type trace struct{ processes, mounts, groups, files int }

// traces looks for all that has the name of the cluster's folder in it: in command
// lines, working directories, control groups and mounts of all processes, in the
// folder itself and in the names of control groups. Namespaces have no names, and
// are there only as long as processes and mounts are.
func traces(t *testing.T, dir string) (found trace) {
	t.Helper()
	name := filepath.Base(dir)
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		directory, _ := os.Readlink(filepath.Join(p, "cwd"))
		if holds(p+"/cmdline", name) || holds(p+"/cgroup", name) || strings.Contains(directory, name) {
			found.processes++
		}
		if holds(p+"/mountinfo", name) {
			found.mounts++
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, err := filepath.Glob(pattern + name + "*")
		if err != nil {
			t.Fatal(err)
		}
		found.groups += len(groups)
	}
	if _, err := os.Lstat(dir); err == nil {
		found.files++
	}
	return found
}

// holds reports whether the name is in a file of a process, which may have ended.
func holds(path, name string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte(name))
}
