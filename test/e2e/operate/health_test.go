// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Servers die and return, and balancers detect it; connections to living servers are
// not affected.
func TestHealth(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "health", harness.ECMP(t, lb.L2DSR))
	l.Configure(t, l.Checked(harness.Check))
	l.AwaitInUse(t, 4)
	t.Run("killed", l.checkKilledServer)
	t.Run("all", l.checkAllServersKilled)
	t.Run("ending", l.checkEndingServer)
}

func (l *lab) checkKilledServer(t *testing.T) {
	visitors := l.OpenClients(t, 64)
	killed := l.KillServer(t, harness.Moved)
	l.AwaitInUse(t, 3)
	t.Logf("a killed server is out of the rings of three balancers after %s; its check promises %s, and 50ms",
		time.Since(killed).Round(time.Millisecond), time.Duration(harness.Check.Fall)*harness.Check.Interval)
	h := l.State().Host("lb1")
	if b := harness.Backends(t, h, "web")[harness.Moved4]; b.InUse || b.Health.State != observe.HealthUnhealthy || b.Health.Reason == "" {
		t.Errorf("the killed server is %+v", b)
	}
	others := 0
	for _, b := range visitors {
		if b.Server == harness.Moved {
			continue
		}
		others++
		if err := b.Query(); err != nil {
			t.Errorf("a connection to %s, which lives: %v", b.Server, err)
		}
	}
	if others == 0 || others == len(visitors) {
		t.Errorf("%d of %d connections were to other servers", others, len(visitors))
	}
	for _, url := range []string{harness.Origin(harness.VIP4), harness.Origin(harness.VIP6)} {
		if answers := l.Gets(t, "client", url, 100); answers[harness.Moved] > 0 || len(answers) != 3 {
			t.Errorf("%s: new connections are answered by %v", url, answers)
		}
	}
	began := time.Now()
	l.StartServer(t, harness.Moved)
	l.AwaitInUse(t, 4)
	t.Logf("a server is back after %s; its check promises %s", time.Since(began).Round(time.Millisecond), time.Duration(harness.Check.Rise)*harness.Check.Interval)
	if answers := l.Gets(t, "client", harness.Origin(harness.VIP4), 100); answers[harness.Moved] == 0 {
		t.Errorf("the server that is back gets nothing: %v", answers)
	}
}

// Without a living server clients are rejected, and served as soon as one is back.
func (l *lab) checkAllServersKilled(t *testing.T) {
	names := l.ServerNames()
	for _, name := range names {
		l.KillServer(t, name)
	}
	l.AwaitInUse(t, 0)
	for _, url := range []string{harness.Origin(harness.VIP4), harness.Origin(harness.VIP6)} {
		if _, err := l.Get(t.Context(), "client", url); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, without servers: error %v, want a refusal", url, err)
		}
	}
	l.StartServer(t, names[2])
	l.AwaitInUse(t, 1)
	for _, url := range []string{harness.Origin(harness.VIP4), harness.Origin(harness.VIP6)} {
		if answers := l.Gets(t, "client", url, 20); answers[names[2]] != 20 {
			t.Errorf("%s, with one server: %v", url, answers)
		}
	}
	for _, name := range slices.Delete(slices.Clone(names), 2, 3) {
		l.StartServer(t, name)
	}
	l.AwaitInUse(t, 4)
}

// A drained server that takes no new connections, as one that is about to end, keeps
// those that it has. They end when nothing comes back from it any more.
func (l *lab) checkEndingServer(t *testing.T) {
	// No port that an earlier client had, which the kernel may choose again: a server that
	// still has that connection in TIME-WAIT answers with an ACK instead of a reset.
	l.Sysctl(t, "client", "ipv4/ip_local_port_range", "20000 29999")
	visitors := slices.DeleteFunc(l.OpenClients(t, 64), func(b *harness.Client) bool { return b.Server != harness.Moved })
	if len(visitors) == 0 {
		t.Fatal("no connection was to the server")
	}
	l.Drain(t, "drain", "backend", "web", harness.Moved4)
	l.Drain(t, "drain", "backend", "web6", harness.Moved6)
	rules := func(verdict string) {
		l.Run(t, harness.Moved, "nft", "add table inet ending; flush table inet ending; table inet ending { chain input { "+
			"type filter hook input priority 0; tcp dport 80 "+verdict+"; }; }")
	}
	open := func() { l.Run(t, harness.Moved, "nft", "add table inet ending; delete table inet ending") }
	defer open()

	rules("tcp flags & (syn | ack) == syn reject with tcp reset")
	l.AwaitInUse(t, 3)
	for _, b := range visitors {
		if err := b.Query(); err != nil {
			t.Errorf("the server takes no new connections: an old one: %v", err)
		}
	}
	rules("drop")
	for _, b := range visitors {
		if err := b.Query(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("nothing comes back from the server: an old connection ends with %v, want a reset", err)
		}
	}
	open()
	l.Drain(t, "undrain", "backend", "web", harness.Moved4)
	l.Drain(t, "undrain", "backend", "web6", harness.Moved6)
	l.AwaitInUse(t, 4)
}
