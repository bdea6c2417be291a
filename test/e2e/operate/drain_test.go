// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Operators take backends, services and nodes out of service, and no connection breaks.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "drain", harness.ECMP(t, lb.L2DSR))
	l.Configure(t, l.Checked(harness.PatientCheck))
	l.AwaitInUse(t, 4)
	t.Run("backend", l.checkDrainedBackend)
	t.Run("service", l.checkDrainedService)
	t.Run("restart", l.checkRememberedDrain)
	t.Run("terminated", l.checkTerminated)
}

// flowsLeft is the number of live flows of all drains on all balancers.
func (l *lab) flowsLeft(t *testing.T) int {
	t.Helper()
	flows := 0
	for _, h := range l.Hosts(netlab.Balancer) {
		for _, d := range harness.Query[[]observe.Drain](t, h.Name, control.Dial(h.Socket).Drains) {
			flows += d.Flows
		}
	}
	return flows
}

// New connections go elsewhere at once, existing ones stay and are counted, and "drain
// --wait" returns when they have ended.
func (l *lab) checkDrainedBackend(t *testing.T) {
	visitors := slices.DeleteFunc(l.OpenClients(t, 64), func(b *harness.Client) bool { return b.Server != harness.Moved })
	if len(visitors) == 0 {
		t.Fatal("no connection was to the server")
	}
	l.Drain(t, "drain", "backend", "web", harness.Moved4)
	l.Drain(t, "drain", "backend", "web6", "["+harness.Moved6+"]:80")
	l.Drain(t, "drain", "backend", "web", harness.Moved4+":80") // once more
	for _, url := range []string{harness.Origin(harness.VIP4), harness.Origin(harness.VIP6)} {
		if answers := l.Gets(t, "client", url, 100); answers[harness.Moved] > 0 || len(answers) != 3 {
			t.Errorf("%s: new connections are answered by %v", url, answers)
		}
	}
	for _, b := range visitors {
		if err := b.Query(); err != nil {
			t.Errorf("a connection that was there: %v", err)
		}
	}
	harness.Until(t, "the open connections are left", func() bool { return l.flowsLeft(t) == len(visitors) })
	h := l.State().Host("lb1")
	if b := harness.Backends(t, h, "web")[harness.Moved4]; !b.Drained || b.InUse || b.Reason != "drained" || b.Weight != 1 {
		t.Errorf("the drained backend is %+v", b)
	}
	for _, b := range visitors {
		_ = b.Close()
	}
	for _, h := range l.Hosts(netlab.Balancer) {
		said := harness.Show(t, "drain", "backend", "web", harness.Moved4, "--wait", "--timeout", "30s", "--socket", h.Socket)
		if !strings.Contains(said, "web "+harness.Moved4+":80: 0 flows left") {
			t.Errorf("after all is closed: %s", said)
		}
	}
	l.Drain(t, "undrain", "backend", "web", harness.Moved4)
	l.Drain(t, "undrain", "backend", "web6", harness.Moved6)
	l.AwaitInUse(t, 4)
	if answers := l.Gets(t, "client", harness.Origin(harness.VIP4), 100); answers[harness.Moved] == 0 {
		t.Errorf("the server that is back gets nothing: %v", answers)
	}
}

// A drained service refuses new clients and keeps those it has.
func (l *lab) checkDrainedService(t *testing.T) {
	visitors := l.OpenClients(t, 32)
	l.Drain(t, "drain", "service", "web")
	if _, err := l.Get(t.Context(), "client", harness.Origin(harness.VIP4)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a new connection: error %v, want a refusal", err)
	}
	l.Gets(t, "client", harness.Origin(harness.VIP6), 10) // is another service
	for _, b := range visitors {
		if err := b.Query(); err != nil {
			t.Errorf("a connection to %s: %v", b.Server, err)
		}
	}
	// Flows of earlier tests were closed a moment ago.
	if !await.Holds(func() bool { return l.flowsLeft(t) == len(visitors)/2 }) {
		t.Errorf("%d flows are left, want %d", l.flowsLeft(t), len(visitors)/2)
	}
	l.Drain(t, "undrain", "service", "web")
	l.Gets(t, "client", harness.Origin(harness.VIP4), 20)
}

// A drain survives a kill of the agent: the next one has the backend out of the
// ring from the beginning.
func (l *lab) checkRememberedDrain(t *testing.T) {
	h := l.State().Host("lb1")
	harness.Show(t, "drain", "backend", "web", harness.Moved4, "--socket", h.Socket)
	l.KillAgent(t, h, "agent")
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the next agent answers", func() bool {
		_, err := control.Dial(h.Socket).Status(t.Context())
		return err == nil && harness.Services(t, h)["web"].BackendsInUse == 3
	})
	if b := harness.Backends(t, h, "web")[harness.Moved4]; !b.Drained {
		t.Errorf("after a restart the drained backend is %+v", b)
	}
	harness.Show(t, "undrain", "backend", "web", harness.Moved4, "--socket", h.Socket)
	l.AwaitInUse(t, 4)
}

// SIGTERM waits for packets to stay away, but not for ever and not twice.
func (l *lab) checkTerminated(t *testing.T) {
	h := l.State().Host("lb2")
	text := l.Config(h.Name, l.Checked(harness.PatientCheck))
	set := func(drainTimeout string) {
		l.Write(t, h, strings.Replace(text, "drainTimeout: 0s", "drainTimeout: "+drainTimeout, 1))
		harness.Show(t, "reload", "--socket", h.Socket)
	}
	set("3s")

	w := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
	harness.Until(t, "there is load", func() bool { return harness.Services(t, h)["web"].PacketsPerSecond > 100 })
	began := time.Now()
	ended := l.SignalAgent(t, h, unix.SIGTERM)
	harness.Until(t, "the node drains", func() bool { return harness.Status(t, h).Draining })
	<-ended
	if took := time.Since(began); took < 3*time.Second || took > await.Patience {
		t.Errorf("under load the agent ended after %s, want its 3s", took)
	}
	l.StartAgent(t, h)
	if harness.Status(t, h).Draining {
		t.Error("the next agent drains")
	}
	set("2m")
	began = time.Now()
	ended = l.SignalAgent(t, h, unix.SIGTERM)
	harness.Until(t, "the node drains", func() bool { return harness.Status(t, h).Draining })
	l.SignalAgent(t, h, unix.SIGTERM)
	<-ended
	if took := time.Since(began); took >= 2*time.Minute {
		t.Errorf("after a second SIGTERM the agent ended after %s", took)
	}
	l.StartAgent(t, h)
	w.End(t)
	began = time.Now()
	<-l.SignalAgent(t, h, unix.SIGTERM)
	t.Logf("without packets the agent ends %s after SIGTERM", time.Since(began).Round(time.Millisecond))
	if log := l.Run(t, h.Name, "cat", filepath.Join(h.Directory, "agent.log")); !strings.Contains(log, `msg="node drained"`) ||
		!strings.Contains(log, `msg="drain timeout expired with traffic still arriving"`) {
		t.Errorf("the log doesn't say how draining went:\n%s", log)
	}
	l.StartAgent(t, h)
}
