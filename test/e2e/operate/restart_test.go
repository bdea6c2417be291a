// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The kernel balances without an agent, until "agent --remove".
func TestWithoutAgent(t *testing.T) {
	l := bringUp(t, "agentless", harness.ECMP(t, lb.L2DSR))
	t.Run("killed", l.checkKilled)
	t.Run("removed", l.checkRemoved)
}

// An agent is killed under load and started again, with a flow table of another
// size: no packet is lost, no connection moves, and the new agent finds the
// kernel's counts of that time.
func (l *lab) checkKilled(t *testing.T) {
	h := l.State().Host("lb1")
	l.CheckPackets(t, "forward_l2dsr", func() {
		w := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
		idle := harness.ExitsOf(t, h)["forward_l2dsr"]
		harness.Until(t, "the load has begun", func() bool { return harness.ExitsOf(t, h)["forward_l2dsr"] > idle+1000 })
		before := harness.ExitsOf(t, h)["forward_l2dsr"]

		l.KillAgent(t, h, "agent")
		passed := harness.Frames(t, l.Lab, "switch")[h.Name].Received
		harness.Until(t, "packets pass a balancer without an agent", func() bool {
			return harness.Frames(t, l.Lab, "switch")[h.Name].Received > passed+1000
		})

		resizeFlows(t, h)
		l.StartAgent(t, h)
		s := harness.Status(t, h)
		if !s.DataPlane.Attachments[0].Adopted || s.DataPlane.Attachments[0].Mode != "native" {
			t.Errorf("attachments %+v: want eth0, native, adopted", s.DataPlane.Attachments)
		}
		if after := harness.ExitsOf(t, h)["forward_l2dsr"]; after < before+1000 {
			t.Errorf("%d packets were forwarded before the agent was killed, %d are now known", before, after)
		}
		w.End(t)
	})
}

// resizeFlows lets the next agent of a balancer have another flow table, as an
// upgrade may.
func resizeFlows(t *testing.T, h *netlab.HostState) {
	t.Helper()
	path := filepath.Join(h.Directory, netlab.AgentFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "dataplane:\n", "dataplane:\n  flows: 4096\n", 1)
	if changed == string(text) {
		t.Fatalf("no dataplane section in %s", path)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The data plane of a stopped agent continues, and "agent --remove" removes it.
func (l *lab) checkRemoved(t *testing.T) {
	h := l.State().Host("lb3")
	if err := l.Stop(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	some := harness.Ports(harness.Window)
	if n := harness.ByServer(l.Echo(t, "client", harness.VIP4, some))[""]; n > 0 {
		t.Errorf("agent stopped: no answer to %d of %d ports", n, len(some))
	}

	agent := l.Process(t, h.Name, "agent")
	l.Run(t, h.Name, append(slices.Clone(agent.Args), "--remove")...)
	if _, err := os.Stat(h.Directory + "/bpf/fairlead"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pins are left: %v", err)
	}
	if l.program(t, h.Name) != 0 {
		t.Error("eth0 still has an XDP program")
	}
	// The router continues to send a third of the ports there.
	if n := harness.ByServer(l.Echo(t, "client", harness.VIP4, some))[""]; n < 2 || n > len(some)-8 {
		t.Errorf("data plane removed: no answer to %d of %d ports, want about a third", n, len(some))
	}

	l.StartAgent(t, h)
	if a := harness.Status(t, h).DataPlane.Attachments[0]; a.Adopted {
		t.Errorf("attachment %+v: there was nothing to adopt", a)
	}
	if n := harness.ByServer(l.Echo(t, "client", harness.VIP4, some))[""]; n > 0 {
		t.Errorf("agent started: no answer to %d of %d ports", n, len(some))
	}
}

// An agent that is restarted, or killed and started, doesn't send clients to servers that
// its predecessor found dead.
func TestDeadServersAndRestarts(t *testing.T) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 10})
	if err != nil {
		t.Fatal(err)
	}
	l := bringUp(t, "deadservers", topology)
	l.Configure(t, l.Checked(harness.Check))
	l.AwaitInUse(t, 10)
	h := l.State().Host("lb1")
	l.KillServer(t, "server2")
	l.KillServer(t, "server3")
	l.AwaitInUse(t, 8)
	for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGKILL} {
		t.Run(unix.SignalName(signal), func(t *testing.T) { l.checkRestart(t, h, signal) })
	}
}

// checkRestart restarts an agent under load: each request has a connection of its own, and
// none fails.
func (l *lab) checkRestart(t *testing.T, h *netlab.HostState, signal unix.Signal) {
	// Slow enough to show it if backends count as healthy until they are probed.
	slow := harness.Check
	slow.Interval, slow.Timeout = 2*time.Second, time.Second
	l.Configure(t, l.Checked(slow))
	l.AwaitInUse(t, 8)
	w := l.Load(t, "client", harness.LoadLimit, "-c", "8", "-H", "Connection: close", harness.Origin(harness.VIP4))
	more := func(what string) {
		passed := harness.Frames(t, l.Lab, "switch")[h.Name].Received
		harness.Until(t, "packets pass "+what, func() bool {
			return harness.Frames(t, l.Lab, "switch")[h.Name].Received > passed+2000
		})
	}
	more("before")
	<-l.SignalAgent(t, h, signal)
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the agent answers", func() bool {
		_, err := control.Dial(h.Socket).Status(t.Context())
		return err == nil
	})
	more("afterwards")
	l.AwaitInUse(t, 8)
	w.End(t)
}
