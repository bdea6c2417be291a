// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// The kernel balances while there is no agent, until it is told to stop.
func TestWithoutAgent(t *testing.T) {
	l := bringUp(t, "agentless", ecmp(t, lb.L2DSR))
	t.Run("killed", l.checkKilled)
	t.Run("removed", l.checkRemoved)
}

// An agent is killed under load and started again, with a flow table of another
// size: no packet is lost, no connection moves, and the new agent finds what the
// kernel counted meanwhile.
func (l *lab) checkKilled(t *testing.T) {
	h := l.State().Host("lb1")
	l.account(t, "forward_l2dsr", func() {
		w := l.load(t, "client", loadLimit, origin(vip4))
		idle := exitsOf(t, h)["forward_l2dsr"]
		until(t, "the load has begun", func() bool { return exitsOf(t, h)["forward_l2dsr"] > idle+1000 })
		before := exitsOf(t, h)["forward_l2dsr"]

		l.kill(t, h, "agent")
		passed := l.frames(t, "switch")[h.Name].received
		until(t, "packets pass a balancer without an agent", func() bool {
			return l.frames(t, "switch")[h.Name].received > passed+1000
		})

		resizeFlows(t, h)
		l.startAgent(t, h)
		s := status(t, h)
		if !s.DataPlane.Attachments[0].Adopted || s.DataPlane.Attachments[0].Mode != "native" {
			t.Errorf("attachments %+v: want eth0, native, adopted", s.DataPlane.Attachments)
		}
		if after := exitsOf(t, h)["forward_l2dsr"]; after < before+1000 {
			t.Errorf("%d packets were forwarded before the agent was killed, %d are now known", before, after)
		}
		w.end(t)
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

// kill ends a process at once and waits until it is gone.
func (l *lab) kill(t *testing.T, h *netlab.HostState, process string) {
	t.Helper()
	if err := l.Kill(t.Context(), h.Name, process); err != nil {
		t.Fatal(err)
	}
	if _, err := observe.Dial(h.Socket).Status(t.Context()); err == nil {
		t.Fatalf("%s: somebody answers in place of the agent", h.Name)
	}
}

// startAgent starts a balancer's agent again and waits until it has programmed
// its services with all backends.
func (l *lab) startAgent(t *testing.T, h *netlab.HostState) {
	t.Helper()
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	until(t, h.Name+" is ready again", func() bool {
		if _, err := observe.Dial(h.Socket).Status(t.Context()); err != nil {
			return false
		}
		s := status(t, h)
		return s.Services.Programmed == len(l.topology.Services) && s.Backends.InUse == s.Backends.Total
	})
}

// A stopped agent's data plane goes on, and "agent --remove" takes it away.
func (l *lab) checkRemoved(t *testing.T) {
	h := l.State().Host("lb3")
	if err := l.Stop(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	some := ports(window)
	if n := byServer(l.echo(t, "client", vip4, some))[""]; n > 0 {
		t.Errorf("agent stopped: nobody answers %d of %d ports", n, len(some))
	}

	agent := l.process(t, h.Name, "agent")
	l.run(t, h.Name, append(slices.Clone(agent.Args), "--remove")...)
	if _, err := os.Stat(h.Directory + "/bpf/fairlead"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pins are left: %v", err)
	}
	if l.runsXDP(t, h.Name) {
		t.Error("eth0 still has an XDP program")
	}
	// The router goes on sending a third of the ports there.
	if n := byServer(l.echo(t, "client", vip4, some))[""]; n < 2 || n > len(some)-8 {
		t.Errorf("data plane removed: nobody answers %d of %d ports, want about a third", n, len(some))
	}

	l.startAgent(t, h)
	if a := status(t, h).DataPlane.Attachments[0]; a.Adopted {
		t.Errorf("attachment %+v: there was nothing to adopt", a)
	}
	if n := byServer(l.echo(t, "client", vip4, some))[""]; n > 0 {
		t.Errorf("agent started: nobody answers %d of %d ports", n, len(some))
	}
}

func (l *lab) runsXDP(t *testing.T, host string) bool {
	t.Helper()
	attached := false
	err := l.Do(host, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			attached = link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return attached
}
