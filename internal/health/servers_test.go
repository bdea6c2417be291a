// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/fake"
)

// testMonitor is a Monitor of servers without a network.
type testMonitor struct {
	t *testing.T
	*Monitor
	mu sync.Mutex
	// trouble is why probes of an address fail; takes is how long they take.
	trouble map[netip.Addr]error
	takes   time.Duration
	probes  []probed
	flying  int
	peak    int
	// open counts paths that aren't released, opened all; through are the services of those opened since the last look.
	open, opened int
	through      []lb.VIP
	unreachable  error
	verdicts     []Verdict
}

type probed struct {
	target netip.AddrPort
	at     time.Time
}

// withServers runs a test of a monitor in a bubble. At its end no path may be open.
func withServers(t *testing.T, test func(t *testing.T, m *testMonitor)) {
	synctest.Test(t, func(t *testing.T) {
		m := &testMonitor{t: t, trouble: make(map[netip.Addr]error), takes: time.Millisecond / 10}
		m.Monitor = New(Config{
			Paths: m, Prober: func(*lb.HealthCheck) Prober { return m }, Probes: 1000,
			Report: m.take, Log: slog.New(slog.DiscardHandler),
		})
		test(t, m)
	})
}

// watch lets the monitor probe services until the end of the test.
func (m *testMonitor) watch(services ...lb.Service) {
	if len(services) > 0 {
		m.Set(services)
	}
	m.t.Cleanup(func() {
		if targets, _ := m.size(); m.open != 0 || targets != 0 {
			m.t.Errorf("%d paths are open at the end, to %d targets", m.open, targets)
		}
	})
	fake.Run(m.t, fake.Part(m.Run))
}

// size returns how many targets are probed, and how many backends hang on them.
func (m *testMonitor) size() (targets, members int) {
	m.Monitor.mu.Lock()
	defer m.Monitor.mu.Unlock()
	return len(m.targets), len(m.members)
}

func (m *testMonitor) Open(svc *lb.Service, b lb.Backend, port uint16) (Path, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.ContainsFunc(svc.Backends, func(own lb.Backend) bool { return own.ID() == b.ID() }) {
		m.t.Errorf("a path through %s to %s, which is none of its backends", svc.VIP, b.ID())
	}
	if m.unreachable != nil {
		return Path{}, nil, m.unreachable
	}
	m.open++
	m.opened++
	m.through = append(m.through, svc.VIP)
	return Path{Target: netip.AddrPortFrom(b.Address, port)}, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open--
	}), nil
}

// openedThrough returns the services through which paths were opened since the last look.
func (m *testMonitor) openedThrough() []lb.VIP {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	opened := m.through
	m.through = nil
	return opened
}

func (m *testMonitor) Probe(ctx context.Context, path Path) error {
	m.mu.Lock()
	m.probes = append(m.probes, probed{path.Target, time.Now()})
	m.flying++
	m.peak = max(m.peak, m.flying)
	m.mu.Unlock()
	var err error
	select {
	case <-time.After(m.takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying--
	if err == nil {
		err = m.trouble[path.Target.Addr()]
	}
	return err
}

func (m *testMonitor) take(take func() []Verdict) {
	verdicts := take()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verdicts = append(m.verdicts, verdicts...)
}

// reported returns the reports since the last look, in words and sorted.
func (m *testMonitor) reported() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for _, v := range m.verdicts {
		word := map[bool]string{true: "healthy", false: "unhealthy"}[v.Healthy]
		if !v.Known {
			word = "perhaps " + word
		}
		if v.Silent {
			word = "silent"
		}
		if v.Share != lb.WholeShare {
			word += fmt.Sprintf(" %d/16", v.Share)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", v.VIP.Address, v.Backend, word))
	}
	m.verdicts = nil
	slices.Sort(lines)
	return lines
}

func (m *testMonitor) expect(want ...string) {
	m.t.Helper()
	if diff := cmp.Diff(want, m.reported()); diff != "" {
		m.t.Errorf("reported: -want +got:\n%s", diff)
	}
}

// after advances the clock, and expects these reports meanwhile.
func (m *testMonitor) after(pass time.Duration, want ...string) {
	m.t.Helper()
	time.Sleep(pass)
	m.expect(want...)
}

// wantProbes checks the number of probes since the last look.
func (m *testMonitor) wantProbes(least, most int) {
	m.t.Helper()
	synctest.Wait()
	if n := len(m.probed()); n < least || n > most {
		m.t.Errorf("%d probes, want %d to %d", n, least, most)
	}
}

func (m *testMonitor) breaks(address string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble[netip.MustParseAddr(address)] = err
}

func (m *testMonitor) probed() []probed {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.probes
	m.probes = nil
	return all
}

// service is a service in the mode NAT, named like its VIP's address.
func service(vip string, check *lb.HealthCheck, backends ...string) lb.Service {
	s := fake.Service(vip, fake.VIP(vip), backends...)
	s.Forward, s.Health = lb.NAT, check
	return s
}

func tcpCheck() *lb.HealthCheck {
	return &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second / 2, Rise: 2, Fall: 3}
}

var errRefused = errors.New("connection refused")

// addresses are that many backends.
func addresses(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("10.%d.%d.%d", 2+i>>16, i>>8&0xff, i&0xff)
	}
	return all
}
