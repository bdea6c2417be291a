// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Services that check the same backend in the same way share its probes, and
// judge the results each for itself.
func TestSharedProbes(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		hasty, patient, other := tcpCheck(), tcpCheck(), tcpCheck()
		hasty.Fall, patient.Fall, other.Port = 1, 5, 8080
		m.watch(
			service("10.1.1.1", hasty, "10.0.0.1"), service("10.1.1.2", patient, "10.0.0.1"), service("10.1.1.3", other, "10.0.0.1"),
		)
		time.Sleep(10 * time.Second)
		m.reported()
		if targets, members := m.size(); targets != 2 || members != 3 || m.opened != 2 {
			t.Errorf("%d targets of %d backends, %d paths", targets, members, m.opened)
		}
		m.wantProbes(20, 24)
		m.breaks("10.0.0.1", errRefused)
		m.after(1010*time.Millisecond, "10.1.1.1 10.0.0.1:80 unhealthy")
		m.after(5*time.Second, "10.1.1.2 10.0.0.1:80 unhealthy", "10.1.1.3 10.0.0.1:80 unhealthy")
	})
}

// In the DSR modes the probe is for a VIP: another VIP is another target, as its
// backend may lack the one and have the other.
func TestTargets(t *testing.T) {
	base := service("10.1.1.1", tcpCheck(), "10.0.0.1")
	base.Forward = lb.L2DSR
	key := func(change func(s *lb.Service, b *lb.Backend)) targetKey {
		s := base
		check := *s.Health
		s.Health = &check
		b := s.Backends[0]
		change(&s, &b)
		return newTargetKey(&s, b, s.Health.WireKey())
	}
	nat := func(s *lb.Service) { s.Forward = lb.NAT }
	same := key(func(*lb.Service, *lb.Backend) {})
	for name, test := range map[string]struct {
		change func(s *lb.Service, b *lb.Backend)
		shared bool
	}{
		"weight":         {func(_ *lb.Service, b *lb.Backend) { b.Weight, b.ServerID = 7, "a" }, true},
		"name":           {func(s *lb.Service, _ *lb.Backend) { s.Name, s.MinHealthy = "x", 7 }, true},
		"rise":           {func(s *lb.Service, _ *lb.Backend) { s.Health.Rise = 9 }, true},
		"VIP":            {func(s *lb.Service, _ *lb.Backend) { s.Address = netip.MustParseAddr("10.1.1.2") }, false},
		"segment":        {func(s *lb.Service, _ *lb.Backend) { s.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 7} }, false},
		"mode":           {func(s *lb.Service, _ *lb.Backend) { s.Forward = lb.IPIP }, false},
		"backend":        {func(_ *lb.Service, b *lb.Backend) { b.Address = netip.MustParseAddr("10.0.0.2") }, false},
		"mac":            {func(_ *lb.Service, b *lb.Backend) { b.MAC = lb.MAC{2} }, false},
		"backend's vlan": {func(_ *lb.Service, b *lb.Backend) { b.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: 7} }, false},
		"port":           {func(_ *lb.Service, b *lb.Backend) { b.Port = 81 }, false},
		"check's port":   {func(s *lb.Service, _ *lb.Backend) { s.Health.Port = 81 }, false},
		"interval":       {func(s *lb.Service, _ *lb.Backend) { s.Health.Interval++ }, false},
		"monitor port":   {func(_ *lb.Service, b *lb.Backend) { b.MonitorPort = 81 }, false},
		"own as monitor": {func(_ *lb.Service, b *lb.Backend) { b.MonitorAddress = b.Address }, false},
	} {
		if shared := key(test.change) == same; shared != test.shared {
			t.Errorf("%s: shared %t, want %t", name, shared, test.shared)
		}
	}
	one := key(func(s *lb.Service, _ *lb.Backend) { nat(s) })
	two := key(func(s *lb.Service, _ *lb.Backend) { nat(s); s.Address = netip.MustParseAddr("10.1.1.2") })
	if one != two || one == same {
		t.Error("with NAT the VIP makes no difference, the mode does")
	}
	monitored := func(_ *lb.Service, b *lb.Backend) { b.MonitorAddress = netip.MustParseAddr("10.9.0.1") }
	one = key(monitored)
	two = key(func(s *lb.Service, b *lb.Backend) {
		monitored(s, b)
		s.Address, s.Forward = netip.MustParseAddr("10.1.1.2"), lb.IPIP
		b.Address, b.MAC = netip.MustParseAddr("10.0.0.2"), lb.MAC{2}
	})
	if one != two || one == same {
		t.Error("probes of a monitor address depend on the backend or the service")
	}
}

// A monitor address is probed in place of backends, at a port of its own, in modes without
// translation too; several backends and services share its probes.
func TestMonitorAddress(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		monitor := netip.MustParseAddrPort("10.9.0.1:9100")
		one, two := service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2"), service("10.1.1.2", tcpCheck(), "10.0.0.1")
		one.Forward, one.Backends[0].MonitorPort = lb.L2DSR, 81
		for _, b := range []*lb.Backend{&one.Backends[1], &two.Backends[0]} {
			b.MonitorAddress, b.MonitorPort = monitor.Addr(), monitor.Port()
		}
		m.watch(one, two)
		time.Sleep(time.Second / 2)
		m.reported()
		if targets, members := m.size(); targets != 2 || members != 3 || m.opened != 1 {
			t.Errorf("%d targets of %d backends, %d paths of the data plane", targets, members, m.opened)
		}
		seen := map[netip.AddrPort]bool{}
		for _, p := range m.probed() {
			seen[p.target] = true
		}
		if len(seen) != 2 || !seen[monitor] || !seen[netip.MustParseAddrPort("10.0.0.1:81")] {
			t.Errorf("probed: %v", seen)
		}
		m.breaks("10.9.0.1", errRefused)
		m.after(4*time.Second, "10.1.1.1 10.0.0.2:80 unhealthy", "10.1.1.2 10.0.0.1:80 unhealthy")
		two.Backends = slices.Clone(two.Backends)
		two.Backends[0].MonitorAddress = netip.Addr{}
		m.Set([]lb.Service{one, two})
		m.after(2*time.Second, "10.1.1.2 10.0.0.1:80 healthy")
	})
}

// Setting the same services, or other weights, changes nothing that is known.
func TestSetKeepsVerdicts(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.breaks("10.0.0.1", errRefused)
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1"))
		m.after(time.Second/2, "10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.1:80 unhealthy")
		probes, opened := len(m.probed()), m.opened
		for range 3 {
			again := service("10.1.1.1", tcpCheck(), "10.0.0.1")
			again.Backends[0].Weight = 7
			again.Health.Rise, again.Health.Fall = 1, 1
			m.Set([]lb.Service{again})
		}
		m.expect()
		if n := len(m.probed()); n != 0 || probes != tcpCheck().Fall || m.opened != opened {
			t.Errorf("%d probes, then %d, %d paths, then %d", probes, n, opened, m.opened)
		}
		m.breaks("10.0.0.1", nil)
		m.after(time.Second, "10.1.1.1 10.0.0.1:80 healthy") // by the new rise
	})
}

// A check that changes starts again, and until it knows more the backend counts
// as it did. One that ends leaves nothing.
func TestCheckChanges(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.takes = 5 * time.Millisecond
		m.breaks("10.0.0.1", errRefused)
		m.watch(service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2"))
		time.Sleep(time.Second)
		m.reported()
		other := tcpCheck()
		other.Port = 8080
		m.Set([]lb.Service{service("10.1.1.1", other, "10.0.0.1", "10.0.0.2")})
		m.after(2*time.Millisecond, "10.1.1.1 10.0.0.1:80 perhaps unhealthy", "10.1.1.1 10.0.0.2:80 perhaps healthy")
		m.after(10*time.Millisecond, "10.1.1.1 10.0.0.2:80 healthy")
		time.Sleep(200 * time.Millisecond) // in quick succession
		m.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		m.Set([]lb.Service{service("10.1.1.1", nil, "10.0.0.1", "10.0.0.2")})
		synctest.Wait()
		m.probed()
		m.after(5 * time.Second)
		if n := len(m.probed()); n != 0 || len(m.States()) != 0 || m.open != 0 {
			t.Errorf("%d probes, %d states, %d paths without a check", n, len(m.States()), m.open)
		}
	})
}

// How backends count before their first probe is over.
func TestInitially(t *testing.T) {
	const joined, was = "10.1.1.1 10.0.0.2:80 perhaps ", "10.1.1.1 10.0.0.1:80 perhaps "
	for initially, want := range map[lb.Initially][2]string{
		lb.InitiallyAuto:      {was + "healthy", joined + "unhealthy"},
		lb.InitiallyHealthy:   {was + "healthy", joined + "healthy"},
		lb.InitiallyUnhealthy: {was + "unhealthy", joined + "unhealthy"},
	} {
		withServers(t, func(_ *testing.T, m *testMonitor) {
			m.takes = 5 * time.Millisecond
			check := tcpCheck()
			check.Initially = initially
			m.watch(service("10.1.1.1", check, "10.0.0.1"))
			m.after(2*time.Millisecond, want[0])
			time.Sleep(time.Second / 2)
			m.reported()
			m.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1", "10.0.0.2")})
			m.after(2*time.Millisecond, want[1])
			m.after(5*time.Millisecond, "10.1.1.1 10.0.0.2:80 healthy")
		})
	}
}

// A backend that had flows before its service got a check keeps them.
func TestFirstCheckKeepsBackends(t *testing.T) {
	withServers(t, func(_ *testing.T, m *testMonitor) {
		m.takes = 5 * time.Millisecond
		m.watch(service("10.1.1.1", nil, "10.0.0.1"))
		m.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		m.after(2*time.Millisecond, "10.1.1.1 10.0.0.1:80 perhaps healthy")
	})
}

// Some of many new backends are probed at once, the others in the course of the
// interval; and never are more probes on their way than allowed.
func TestManyBackends(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.config.Probes = 300
		m.takes = 100 * time.Millisecond
		m.watch(service("10.1.1.1", tcpCheck(), addresses(2000)...))
		time.Sleep(5 * time.Millisecond)
		m.wantProbes(burst, burst+20)
		time.Sleep(500 * time.Millisecond)
		m.wantProbes(700, 1200)
		time.Sleep(900 * time.Millisecond)
		m.probed()
		if lines := m.reported(); len(lines) != 2*2000 {
			t.Errorf("%d verdicts", len(lines))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(m.probed()); n < 20_000 || n > 23_000 || m.peak > 300 {
			t.Errorf("%d probes in ten intervals, %d at the same time", n, m.peak)
		}
	})
}

// Backends that leave and come in any order leave neither probes nor paths.
func TestBackendChurn(t *testing.T) {
	withServers(t, func(t *testing.T, m *testMonitor) {
		m.takes = 30 * time.Millisecond
		m.watch()
		random := rand.New(rand.NewPCG(1, 2))
		all := addresses(20)
		for range 300 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			n := random.IntN(len(all))
			check := tcpCheck()
			check.Port = uint16(1 + random.IntN(2))
			m.Set([]lb.Service{service("10.1.1.1", check, all[:n]...), service("10.1.1.2", tcpCheck(), all[n:]...)})
			time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
			m.mu.Lock()
			if flying := m.flying; m.open > 20+flying {
				t.Errorf("%d paths open, %d probes on their way", m.open, flying)
			}
			m.mu.Unlock()
			if targets, members := m.size(); members != 20 || targets > 20 {
				t.Errorf("%d targets of %d backends", targets, members)
			}
		}
		time.Sleep(time.Second)
		if len(m.States()) != 20 || m.open != 20 {
			t.Errorf("%d states, %d paths at the end", len(m.States()), m.open)
		}
	})
}

// A new process begins with the verdicts of an earlier one, by which a backend returns
// or not as if there had been no restart. A changed check or backend doesn't have them.
func TestEarlierVerdicts(t *testing.T) {
	dead := State{Known: true, Silent: true, Reason: "timed out after 500ms", Since: time.Unix(1, 0)}
	own := service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")
	for name, test := range map[string]struct {
		change func(*lb.Service)
		want   string
	}{
		"same":        {func(*lb.Service) {}, "silent"},
		"rise":        {func(s *lb.Service) { s.Health.Rise = 1 }, "silent"},
		"weight":      {func(s *lb.Service) { s.Backends[0].Weight = 2 }, "silent"},
		"path":        {func(s *lb.Service) { s.Health.Type, s.Health.Path = lb.HealthHTTP, "/" }, "perhaps healthy"},
		"header":      {func(s *lb.Service) { s.Health.Headers = map[string]string{"a": "b"} }, "perhaps healthy"},
		"check port":  {func(s *lb.Service) { s.Health.Port = 81 }, "perhaps healthy"},
		"mode":        {func(s *lb.Service) { s.Forward = lb.L2DSR }, "perhaps healthy"},
		"VIP":         {func(s *lb.Service) { s.Address = netip.MustParseAddr("10.1.1.2") }, "perhaps healthy"},
		"backend MAC": {func(s *lb.Service) { s.Backends[0].MAC = lb.MAC{2} }, "perhaps healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, func(_ *testing.T, m *testMonitor) {
				m.takes = 5 * time.Millisecond
				m.config.Earlier = map[string]State{Identity(&own, own.Backends[0]): dead}
				svc := service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")
				test.change(&svc)
				m.watch(svc)
				time.Sleep(2 * time.Millisecond)
				vip := svc.Address.String()
				m.expect(vip+" 10.0.0.1:80 "+test.want, vip+" 10.0.0.2:80 perhaps healthy")
				m.breaks("10.0.0.1", context.DeadlineExceeded)
				m.breaks("10.0.0.2", context.DeadlineExceeded)
				m.after(10 * time.Millisecond) // no probe brought anything that isn't known
			})
		})
	}
	withServers(t, func(_ *testing.T, m *testMonitor) {
		m.takes = 5 * time.Millisecond
		m.config.Earlier = map[string]State{Identity(&own, own.Backends[0]): dead}
		m.watch(own)
		time.Sleep(10 * time.Millisecond)
		m.reported()
		m.after(1100*time.Millisecond, "10.1.1.1 10.0.0.1:80 healthy") // by two successes
		m.Set(nil)
		m.Set([]lb.Service{own})
		m.after(2*time.Millisecond, "10.1.1.1 10.0.0.1:80 perhaps unhealthy", "10.1.1.1 10.0.0.2:80 perhaps unhealthy")
	})
}
