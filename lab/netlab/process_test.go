// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process number in the state file may have been reused.
func TestStopKeepsOtherProcesses(t *testing.T) {
	stranger := exec.Command("sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	started, err := startTime(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	recorded := ProcessState{Process: Process{Name: "old"}, PID: stranger.Process.Pid, StartTime: started - 1}
	if err := stop([]ProcessState{recorded}, evictGrace); err != nil {
		t.Error(err)
	}
	recorded.StartTime = started
	f := recorded.running()
	if f == nil {
		t.Fatal("the stranger was stopped")
	}
	_ = f.Close()
}

func TestStartAndStop(t *testing.T) {
	labs := newLabs(t)
	lab := bringUp(t, labs, plain(1))
	// Deaf to SIGTERM, and so are its children, which aren't recorded.
	deaf := Process{Name: "deaf", Args: []string{"sh", "-c", "trap '' TERM; echo $WORD; sleep 60 & wait; wait"}, Env: []string{"WORD=listening"}}
	if err := lab.Start(t.Context(), "client", deaf); err != nil {
		t.Fatal(err)
	}
	if err := lab.Start(t.Context(), "client", deaf); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("started twice: got %v, want that it runs already", err)
	}
	if err := lab.Start(t.Context(), "missing", deaf); err == nil {
		t.Error("started in a host that isn't there")
	}
	// Stopped through another value, as another process would.
	other, err := labs.Open(lab.State().Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Stop(t.Context(), "server1", "nginx"); err != nil {
		t.Error(err)
	}
	if _, err := lab.query(t.Context(), plain(1).Probes[0]); err == nil {
		t.Error("nginx still answers")
	}
	if err := lab.Stop(t.Context(), "server1", "nginx"); err == nil {
		t.Error("stopped twice")
	}
	removeAll(t, labs, lab)
}

// A process can be halted, killed with its children, and started again, also by
// who doesn't know how it was started.
func TestSignalKillAndRestart(t *testing.T) {
	labs := newLabs(t)
	lab := bringUp(t, labs, plain(1))
	ctx, probe := t.Context(), plain(1).Probes[0]
	if err := lab.Signal(ctx, "server1", "nginx", unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.query(ctx, probe); err == nil {
		t.Error("nginx answers while it is halted")
	}
	if err := lab.Signal(ctx, "server1", "nginx", unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	other, err := labs.Open(lab.State().Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Kill(ctx, "server1", "nginx"); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.query(ctx, probe); err == nil {
		t.Error("a worker of nginx was spared")
	}
	if err := other.Signal(ctx, "server1", "nginx", unix.SIGCONT); err == nil {
		t.Error("signalled what doesn't run")
	}
	if err := lab.AwaitProbes(ctx, nil); err != nil {
		t.Errorf("what was killed on purpose is complained about: %v", err)
	}
	if err := lab.Restart(ctx, "server1", "nginx"); err != nil {
		t.Fatal(err)
	}
	if err := lab.AwaitProbes(ctx, []Probe{probe}); err != nil {
		t.Error(err)
	}
	if err := lab.Restart(ctx, "server1", "nginx"); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("restarted what runs: %v", err)
	}
}

// A disconnected host receives nothing.
func TestCutAndMend(t *testing.T) {
	lab := bringUp(t, newLabs(t), plain(1))
	probe := plain(1).Probes[0]
	if err := lab.Cut("server1"); err != nil {
		t.Fatal(err)
	}
	if name, err := lab.query(t.Context(), probe); err == nil {
		t.Errorf("%s answers through a wire that is out", name)
	}
	if err := lab.Mend("server1"); err != nil {
		t.Fatal(err)
	}
	if err := lab.AwaitProbes(t.Context(), []Probe{probe}); err != nil {
		t.Error(err)
	}
	if err := lab.Cut("client"); err == nil || !strings.Contains(err.Error(), "not on a switch") {
		t.Errorf("cut the client, which not on a switch: %v", err)
	}
}
