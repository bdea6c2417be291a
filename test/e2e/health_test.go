// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// check is the health check of the tests' web services.
var check = lb.HealthCheck{
	Type: lb.HealthHTTP, Path: "/", Interval: 200 * time.Millisecond, Timeout: 200 * time.Millisecond, Rise: 2, Fall: 3,
}

// Servers die and return, and the balancers notice; who is served by a living
// one doesn't.
func TestHealth(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "health", ecmp(t, lb.L2DSR))
	l.configure(t, l.checked(check))
	l.awaitInUse(t, 4)
	t.Run("killed", l.checkKilledServer)
	t.Run("all", l.checkAllServersKilled)
	t.Run("panic", l.checkPanic)
	t.Run("ending", l.checkEndingServer)
}

// checked are the lab's services, those of the web with a health check, and
// clients are told when nobody is there.
func (l *lab) checked(check lb.HealthCheck) []lb.Service {
	services := slices.Clone(l.topology.Services)
	for i := range services {
		if s := &services[i]; s.Protocol == lb.TCP {
			s.Health, s.Unavailable = &check, lb.Reject
		}
	}
	return services
}

// awaitInUse waits until so many backends of both web services are in use on
// each balancer, and returns how long it took.
func (l *lab) awaitInUse(t *testing.T, count int) time.Duration {
	t.Helper()
	began := time.Now()
	for _, h := range l.hosts(netlab.Balancer) {
		for _, name := range []string{"web", "web6"} {
			until(t, h.Name+" has the right backends of "+name, func() bool {
				s := services(t, &h)[name]
				return s.BackendsInUse == count && !s.Panic && s.BackendsHealthy == count
			})
		}
	}
	return time.Since(began)
}

// killServer kills a server's nginx, workers included, and returns when.
func (l *lab) killServer(t *testing.T, name string) time.Time {
	t.Helper()
	killed := time.Now()
	if err := l.Kill(t.Context(), name, "nginx"); err != nil {
		t.Fatal(err)
	}
	return killed
}

func (l *lab) startServer(t *testing.T, name string) {
	t.Helper()
	if err := l.Restart(t.Context(), name, "nginx"); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) checkKilledServer(t *testing.T) {
	visitors := l.visitors(t, 64)
	killed := l.killServer(t, moved)
	l.awaitInUse(t, 3)
	t.Logf("a killed server is out of the rings of three balancers after %s; its check promises %s, and 50ms",
		time.Since(killed).Round(time.Millisecond), time.Duration(check.Fall)*check.Interval)
	h := l.State().Host("lb1")
	if b := backends(t, h, "web")[moved4]; b.InUse || b.Health.State != observe.HealthUnhealthy || b.Health.Reason == "" {
		t.Errorf("the killed server is %+v", b)
	}
	others := 0
	for _, b := range visitors {
		if b.server == moved {
			continue
		}
		others++
		if server, err := b.ask(); server != b.server || err != nil {
			t.Errorf("a connection to %s, which lives, is answered by %q (%v)", b.server, server, err)
		}
	}
	if others == 0 || others == len(visitors) {
		t.Errorf("%d of %d connections were to other servers", others, len(visitors))
	}
	for _, url := range []string{origin(vip4), origin(vip6)} {
		if answers := l.gets(t, "client", url, 100); answers[moved] > 0 || len(answers) != 3 {
			t.Errorf("%s: new connections are answered by %v", url, answers)
		}
	}
	began := time.Now()
	l.startServer(t, moved)
	l.awaitInUse(t, 4)
	t.Logf("a server is back after %s; its check promises %s", time.Since(began).Round(time.Millisecond), time.Duration(check.Rise)*check.Interval)
	if answers := l.gets(t, "client", origin(vip4), 100); answers[moved] == 0 {
		t.Errorf("the server that is back gets nothing: %v", answers)
	}
}

// Without a living server clients are told so, and served as soon as one is
// back.
func (l *lab) checkAllServersKilled(t *testing.T) {
	names := l.serverNames()
	for _, name := range names {
		l.killServer(t, name)
	}
	l.awaitInUse(t, 0)
	for _, url := range []string{origin(vip4), origin(vip6)} {
		if _, err := l.get(t.Context(), "client", url); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, without servers: error %v, want a refusal", url, err)
		}
	}
	l.startServer(t, names[2])
	l.awaitInUse(t, 1)
	for _, url := range []string{origin(vip4), origin(vip6)} {
		if answers := l.gets(t, "client", url, 20); answers[names[2]] != 20 {
			t.Errorf("%s, with one server: %v", url, answers)
		}
	}
	for _, name := range slices.Delete(slices.Clone(names), 2, 3) {
		l.startServer(t, name)
	}
	l.awaitInUse(t, 4)
}

// Where too few live, health is ignored, and not where enough do.
func (l *lab) checkPanic(t *testing.T) {
	anxious := check
	anxious.PanicThreshold = 50
	l.configure(t, l.checked(anxious))
	names := l.serverNames()
	for _, name := range names[:2] {
		l.killServer(t, name)
	}
	l.awaitInUse(t, 2)
	l.killServer(t, names[2])
	h := l.State().Host("lb1")
	until(t, "lb1 is in panic", func() bool {
		s := services(t, h)["web"]
		return s.Panic && s.BackendsInUse == 4 && s.BackendsHealthy == 1
	})
	for _, name := range names[:3] {
		l.startServer(t, name)
	}
	l.awaitInUse(t, 4)
}

// A drained server that takes no new connections, as one that is about to end, keeps
// those that it has. They end when nothing comes back from it any more.
func (l *lab) checkEndingServer(t *testing.T) {
	visitors := slices.DeleteFunc(l.visitors(t, 64), func(b *visitor) bool { return b.server != moved })
	if len(visitors) == 0 {
		t.Fatal("no connection was to the server")
	}
	l.drain(t, "drain", "backend", "web", moved4)
	l.drain(t, "drain", "backend", "web6", moved6)
	rules := func(verdict string) {
		l.run(t, moved, "nft", "add table inet ending; flush table inet ending; table inet ending { chain input { "+
			"type filter hook input priority 0; tcp dport 80 "+verdict+"; }; }")
	}
	open := func() { l.run(t, moved, "nft", "add table inet ending; delete table inet ending") }
	defer open()

	rules("tcp flags & (syn | ack) == syn reject with tcp reset")
	l.awaitInUse(t, 3)
	for _, b := range visitors {
		if server, err := b.ask(); server != moved || err != nil {
			t.Errorf("the server takes no new connections: an old one is answered by %q (%v)", server, err)
		}
	}
	rules("drop")
	for _, b := range visitors {
		if server, err := b.ask(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("nothing comes back from the server: an old connection is answered by %q (%v)", server, err)
		}
	}
	open()
	l.drain(t, "undrain", "backend", "web", moved4)
	l.drain(t, "undrain", "backend", "web6", moved6)
	l.awaitInUse(t, 4)
}

func (l *lab) serverNames() []string {
	byName := map[string]bool{}
	for _, h := range l.hosts(netlab.Server) {
		byName[h.Name] = true
	}
	return slices.Sorted(maps.Keys(byName))
}
