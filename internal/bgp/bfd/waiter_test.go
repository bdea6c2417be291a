// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// Each listener has a thread with real-time priority, no other thread has, and none is
// left without peers.
func TestRealTimePriority(t *testing.T) {
	lab := newLab(t)
	near, _ := both(t, lab)
	for _, step := range []struct {
		peers []Peer
		want  int
	}{{[]Peer{to(next4), to(next6)}, 2}, {nil, 0}, {[]Peer{to(next4)}, 1}} {
		near.set(step.peers...)
		await.True(t, strconv.Itoa(step.want)+" threads have priority", func() bool { return near.urgentThreads() == step.want })
	}
}

// Without the right to it, sessions are as good as ordinary threads can make them,
// and the log says so once.
func TestOrdinaryPriority(t *testing.T) {
	lab := newLab(t)
	near, next := startEnd(t, lab, "near", "setpriv", "--bounding-set", "-sys_nice"), startEnd(t, lab, "next")
	near.set(to(next4), to(next6))
	next.set(to(near4), to(near6))
	near.await(0, next4, bgp.BFDUp)
	near.await(0, next6, bgp.BFDUp)
	if n := near.urgentThreads(); n > 0 {
		t.Errorf("%d threads have priority", n)
	}
	near.leave()
	if n := strings.Count(near.log.String(), "bfd without real-time priority"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &near.log)
	}
}

// urgentThreads counts the threads of the end's process with real-time priority.
func (e *end) urgentThreads() (count int) {
	e.t.Helper()
	pid := strconv.Itoa(e.cmd.Process.Pid)
	threads, err := os.ReadDir(filepath.Join("/proc", pid, "task"))
	if err != nil {
		e.t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			e.t.Fatal(err)
		}
		attributes, err := unix.SchedGetAttr(id, 0)
		if err == nil && attributes.Policy == unix.SCHED_RR { // an error: it has just ended
			count++
		}
	}
	return count
}
