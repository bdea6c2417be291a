// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// Operators take things out of service, and nobody notices.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "drain", ecmp(t, lb.L2DSR))
	l.configure(t, l.checked(check))
	l.awaitInUse(t, 4)
	t.Run("backend", l.checkDrainedBackend)
	t.Run("service", l.checkDrainedService)
	t.Run("node", l.checkDrainedNode)
	t.Run("restart", l.checkRememberedDrain)
	t.Run("terminated", l.checkTerminated)
}

// drain runs "drain" or "undrain" on every balancer.
func (l *lab) drain(t *testing.T, args ...string) {
	t.Helper()
	for _, h := range l.hosts(netlab.Balancer) {
		show(t, append(args, "--socket", h.Socket)...)
	}
}

// flowsLeft is the number of live flows of all drains on all balancers.
func (l *lab) flowsLeft(t *testing.T) int {
	t.Helper()
	flows := 0
	for _, h := range l.hosts(netlab.Balancer) {
		for _, d := range ask[[]observe.Drain](t, h.Name, observe.Dial(h.Socket).Drains) {
			flows += d.Flows
		}
	}
	return flows
}

// New connections leave at once, those that are there stay and are counted, and
// whoever waits learns when they are gone.
func (l *lab) checkDrainedBackend(t *testing.T) {
	visitors := slices.DeleteFunc(l.visitors(t, 64), func(b *visitor) bool { return b.server != moved })
	if len(visitors) == 0 {
		t.Fatal("no connection was to the server")
	}
	l.drain(t, "drain", "backend", "web", moved4)
	l.drain(t, "drain", "backend", "web6", "["+moved6+"]:80")
	l.drain(t, "drain", "backend", "web", moved4+":80") // once more
	for _, url := range []string{origin(vip4), origin(vip6)} {
		if answers := l.gets(t, "client", url, 100); answers[moved] > 0 || len(answers) != 3 {
			t.Errorf("%s: new connections are answered by %v", url, answers)
		}
	}
	stay := func() {
		t.Helper()
		for _, b := range visitors {
			if server, err := b.ask(); server != moved || err != nil {
				t.Errorf("a connection that was there is answered by %q (%v)", server, err)
			}
		}
	}
	stay()
	until(t, "the open connections are left", func() bool { return l.flowsLeft(t) == len(visitors) })
	h := l.State().Host("lb1")
	if b := backends(t, h, "web")[moved4]; !b.Drained || b.InUse || b.Reason != "drained" || b.Weight != 1 {
		t.Errorf("the drained backend is %+v", b)
	}

	var late *exec.ExitError
	busy := exec.CommandContext(t.Context(), "fairlead", "drain", "backend", "web", moved4, "--wait", "--timeout", "1s",
		"--settle", "0s", "--socket", l.busiest(t).Socket)
	if out, err := busy.CombinedOutput(); !errors.As(err, &late) || !strings.Contains(string(out), "flows are left after 1s") {
		t.Errorf("waiting in vain: %v: %s", err, out)
	}
	stay()
	for _, b := range visitors {
		_ = b.Close()
	}
	for _, h := range l.hosts(netlab.Balancer) {
		said := show(t, "drain", "backend", "web", moved4, "--wait", "--timeout", "30s", "--socket", h.Socket)
		if !strings.Contains(said, "web "+moved4+":80: 0 flows left") {
			t.Errorf("after all is closed: %s", said)
		}
	}
	l.drain(t, "undrain", "backend", "web", moved4)
	l.drain(t, "undrain", "backend", "web6", moved6)
	l.awaitInUse(t, 4)
	if answers := l.gets(t, "client", origin(vip4), 100); answers[moved] == 0 {
		t.Errorf("the server that is back gets nothing: %v", answers)
	}
	status, _, said := fairlead(t, "drain", "backend", "web", "10.9.9.9", "--socket", h.Socket)
	if want := "fairlead: backend web 10.9.9.9: not in the configuration\n"; status != 1 || said != want {
		t.Errorf("an unknown backend: status %d and %q, want 1 and %q", status, said, want)
	}
}

// busiest is a balancer with flows that are left.
func (l *lab) busiest(t *testing.T) *netlab.HostState {
	t.Helper()
	for _, h := range l.hosts(netlab.Balancer) {
		for _, d := range ask[[]observe.Drain](t, h.Name, observe.Dial(h.Socket).Drains) {
			if d.Flows > 0 && d.Service == "web" {
				return &h
			}
		}
	}
	t.Fatal("no balancer has flows left")
	return nil
}

// A drained service refuses new clients and keeps those it has.
func (l *lab) checkDrainedService(t *testing.T) {
	visitors := l.visitors(t, 32)
	l.drain(t, "drain", "service", "web")
	if _, err := l.get(t.Context(), "client", origin(vip4)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a new connection: error %v, want a refusal", err)
	}
	l.gets(t, "client", origin(vip6), 10) // is another service
	for _, b := range visitors {
		if server, err := b.ask(); server != b.server || err != nil {
			t.Errorf("a connection to %s is answered by %q (%v)", b.server, server, err)
		}
	}
	// Those of earlier tests were closed a moment ago.
	if !within(patience, func() bool { return l.flowsLeft(t) == len(visitors)/2 }) {
		t.Errorf("%d flows are left, want %d", l.flowsLeft(t), len(visitors)/2)
	}
	l.drain(t, "undrain", "service", "web")
	l.gets(t, "client", origin(vip4), 20)
}

// A drained node says so, and balances what comes.
func (l *lab) checkDrainedNode(t *testing.T) {
	h := l.State().Host("lb1")
	show(t, "drain", "node", "--socket", h.Socket)
	if s := status(t, h); !s.Draining {
		t.Error("the status of a drained node doesn't say so")
	}
	l.gets(t, "client", origin(vip4), 20)
	show(t, "undrain", "node", "--socket", h.Socket)
	if status(t, h).Draining {
		t.Error("the node is drained though it was undrained")
	}
}

// What is drained stays drained when the agent is killed, and the next one has
// it out of the ring from the beginning.
func (l *lab) checkRememberedDrain(t *testing.T) {
	h := l.State().Host("lb1")
	show(t, "drain", "backend", "web", moved4, "--socket", h.Socket)
	l.kill(t, h, "agent")
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	until(t, "the next agent answers", func() bool {
		_, err := observe.Dial(h.Socket).Status(t.Context())
		return err == nil && services(t, h)["web"].BackendsInUse == 3
	})
	if b := backends(t, h, "web")[moved4]; !b.Drained {
		t.Errorf("after a restart the drained backend is %+v", b)
	}
	show(t, "undrain", "backend", "web", moved4, "--socket", h.Socket)
	l.awaitInUse(t, 4)
}

// SIGTERM waits for packets to stay away, but not for ever and not twice.
func (l *lab) checkTerminated(t *testing.T) {
	h := l.State().Host("lb2")
	text := l.config(h.Name, l.checked(check))
	l.write(t, h, strings.Replace(text, "drainTimeout: 0s", "drainTimeout: 3s", 1))
	show(t, "reload", "--socket", h.Socket)

	w := l.load(t, "client", loadLimit, origin(vip4))
	until(t, "there is load", func() bool { return services(t, h)["web"].PacketsPerSecond > 100 })
	began := time.Now()
	ended := l.signal(t, h, unix.SIGTERM)
	until(t, "the node drains", func() bool { return status(t, h).Draining })
	<-ended
	if took := time.Since(began); took < 3*time.Second || took > patience {
		t.Errorf("under load the agent ended after %s, want its 3s", took)
	}
	l.startAgent(t, h)
	if status(t, h).Draining {
		t.Error("the next agent drains")
	}
	began = time.Now()
	ended = l.signal(t, h, unix.SIGTERM)
	until(t, "the node drains", func() bool { return status(t, h).Draining })
	l.signal(t, h, unix.SIGTERM)
	<-ended
	if took := time.Since(began); took >= 3*time.Second {
		t.Errorf("after a second SIGTERM the agent ended after %s", took)
	}
	l.startAgent(t, h)
	w.end(t)
	began = time.Now()
	<-l.signal(t, h, unix.SIGTERM)
	t.Logf("without packets the agent ends %s after SIGTERM", time.Since(began).Round(time.Millisecond))
	if log := l.run(t, h.Name, "cat", filepath.Join(h.Directory, "agent.log")); !strings.Contains(log, `msg="node drained"`) ||
		!strings.Contains(log, `msg="packets still come, the time to drain is over"`) {
		t.Errorf("the log doesn't say how draining went:\n%s", log)
	}
	l.startAgent(t, h)
}

// signal sends a signal to a balancer's agent and returns a channel that is
// closed when it has ended.
func (l *lab) signal(t *testing.T, h *netlab.HostState, signal unix.Signal) <-chan struct{} {
	t.Helper()
	pidfd := l.agent(t, h)
	if err := unix.PidfdSendSignal(pidfd, signal, nil, 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer unix.Close(pidfd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(time.Minute.Milliseconds()))
			if n > 0 || !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return ended
}

// agent opens a balancer's agent as a file descriptor (pidfd_open(2)).
func (l *lab) agent(t *testing.T, h *netlab.HostState) (pidfd int) {
	t.Helper()
	processes := l.State().Host(h.Name).Processes
	i := slices.IndexFunc(processes, func(p netlab.ProcessState) bool { return p.Name == "agent" })
	pidfd, err := unix.PidfdOpen(processes[i].PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pidfd
}
