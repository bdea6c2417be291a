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
func TestProbesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hasty, patient, other := tcpCheck(), tcpCheck(), tcpCheck()
		hasty.Fall, patient.Fall, other.Port = 1, 5, 8080
		w.Set([]lb.Service{
			service("10.1.1.1", hasty, "10.0.0.1"), service("10.1.1.2", patient, "10.0.0.1"), service("10.1.1.3", other, "10.0.0.1"),
		})
		w.run()
		time.Sleep(10 * time.Second)
		w.reported()
		if targets, members := w.size(); targets != 2 || members != 3 || w.opened != 2 {
			t.Errorf("%d targets of %d backends, %d paths", targets, members, w.opened)
		}
		if n := len(w.probed()); n < 20 || n > 24 {
			t.Errorf("%d probes of two targets in 10 s", n)
		}
		w.breaks("10.0.0.1", errRefused)
		time.Sleep(1010 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		time.Sleep(5 * time.Second)
		w.expect("10.1.1.2 10.0.0.1:80 unhealthy", "10.1.1.3 10.0.0.1:80 unhealthy")
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		monitor := netip.MustParseAddrPort("10.9.0.1:9100")
		one, two := service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2"), service("10.1.1.2", tcpCheck(), "10.0.0.1")
		one.Forward, one.Backends[0].MonitorPort = lb.L2DSR, 81
		for _, b := range []*lb.Backend{&one.Backends[1], &two.Backends[0]} {
			b.MonitorAddress, b.MonitorPort = monitor.Addr(), monitor.Port()
		}
		w.Set([]lb.Service{one, two})
		w.run()
		time.Sleep(time.Second / 2)
		w.reported()
		if targets, members := w.size(); targets != 2 || members != 3 || w.opened != 1 {
			t.Errorf("%d targets of %d backends, %d paths of the data plane", targets, members, w.opened)
		}
		seen := map[netip.AddrPort]bool{}
		for _, p := range w.probed() {
			seen[p.target] = true
		}
		if len(seen) != 2 || !seen[monitor] || !seen[netip.MustParseAddrPort("10.0.0.1:81")] {
			t.Errorf("probed: %v", seen)
		}
		w.breaks("10.9.0.1", errRefused)
		time.Sleep(4 * time.Second)
		w.expect("10.1.1.1 10.0.0.2:80 unhealthy", "10.1.1.2 10.0.0.1:80 unhealthy")
		two.Backends = slices.Clone(two.Backends)
		two.Backends[0].MonitorAddress = netip.Addr{}
		w.Set([]lb.Service{one, two})
		time.Sleep(2 * time.Second)
		w.expect("10.1.1.2 10.0.0.1:80 healthy")
	})
}

// Setting the same services, or other weights, changes nothing that is known.
func TestSetKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.breaks("10.0.0.1", errRefused)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.1:80 unhealthy")
		probes, opened := len(w.probed()), w.opened
		for range 3 {
			again := service("10.1.1.1", tcpCheck(), "10.0.0.1")
			again.Backends[0].Weight = 7
			again.Health.Rise, again.Health.Fall = 1, 1
			w.Set([]lb.Service{again})
		}
		w.expect()
		if n := len(w.probed()); n != 0 || probes != tcpCheck().Fall || w.opened != opened {
			t.Errorf("%d probes, then %d, %d paths, then %d", probes, n, opened, w.opened)
		}
		w.breaks("10.0.0.1", nil)
		time.Sleep(time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 healthy") // by the new rise
	})
}

// A check that changes starts again, and until it knows more the backend counts
// as it did. One that ends leaves nothing.
func TestCheckChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 5 * time.Millisecond
		w.breaks("10.0.0.1", errRefused)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")})
		w.run()
		time.Sleep(time.Second)
		w.reported()
		other := tcpCheck()
		other.Port = 8080
		w.Set([]lb.Service{service("10.1.1.1", other, "10.0.0.1", "10.0.0.2")})
		time.Sleep(2 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps unhealthy", "10.1.1.1 10.0.0.2:80 perhaps healthy")
		time.Sleep(10 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.2:80 healthy")
		time.Sleep(200 * time.Millisecond) // in quick succession
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		w.Set([]lb.Service{service("10.1.1.1", nil, "10.0.0.1", "10.0.0.2")})
		synctest.Wait()
		w.probed()
		time.Sleep(5 * time.Second)
		w.expect()
		if n := len(w.probed()); n != 0 || len(w.States()) != 0 || w.open != 0 {
			t.Errorf("%d probes, %d states, %d paths without a check", n, len(w.States()), w.open)
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
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.takes = 5 * time.Millisecond
			check := tcpCheck()
			check.Initially = initially
			w.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1")})
			w.run()
			time.Sleep(2 * time.Millisecond)
			w.expect(want[0])
			time.Sleep(time.Second / 2)
			w.reported()
			w.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1", "10.0.0.2")})
			time.Sleep(2 * time.Millisecond)
			w.expect(want[1])
			time.Sleep(5 * time.Millisecond)
			w.expect("10.1.1.1 10.0.0.2:80 healthy")
		})
	}
}

// A backend that had flows before its service got a check keeps them.
func TestFirstCheckOfAServiceTakesNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 5 * time.Millisecond
		w.Set([]lb.Service{service("10.1.1.1", nil, "10.0.0.1")})
		w.run()
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		time.Sleep(2 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy")
	})
}

// Some of many new backends are probed at once, the others in the course of the
// interval; and never are more probes on their way than allowed.
func TestManyBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.config.Probes = 300
		w.takes = 100 * time.Millisecond
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), addresses(2000)...)})
		w.run()
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if n := len(w.probed()); n < burst || n > burst+20 {
			t.Errorf("%d probes at once", n)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if n := len(w.probed()); n < 700 || n > 1200 {
			t.Errorf("%d probes in half an interval", n)
		}
		time.Sleep(900 * time.Millisecond)
		w.probed()
		if lines := w.reported(); len(lines) != 2*2000 {
			t.Errorf("%d verdicts", len(lines))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(w.probed()); n < 20_000 || n > 23_000 || w.peak > 300 {
			t.Errorf("%d probes in ten intervals, %d at the same time", n, w.peak)
		}
	})
}

// Backends that leave and come in any order leave neither probes nor paths.
func TestComingAndGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 30 * time.Millisecond
		w.run()
		random := rand.New(rand.NewPCG(1, 2))
		all := addresses(20)
		for range 300 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			n := random.IntN(len(all))
			check := tcpCheck()
			check.Port = uint16(1 + random.IntN(2))
			w.Set([]lb.Service{service("10.1.1.1", check, all[:n]...), service("10.1.1.2", tcpCheck(), all[n:]...)})
			time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
			w.mu.Lock()
			if flying := w.flying; w.open > 20+flying {
				t.Errorf("%d paths open, %d probes on their way", w.open, flying)
			}
			w.mu.Unlock()
			if targets, members := w.size(); members != 20 || targets > 20 {
				t.Errorf("%d targets of %d backends", targets, members)
			}
		}
		time.Sleep(time.Second)
		if len(w.States()) != 20 || w.open != 20 {
			t.Errorf("%d states, %d paths at the end", len(w.States()), w.open)
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
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.takes = 5 * time.Millisecond
				w.config.Earlier = map[string]State{Identity(&own, own.Backends[0]): dead}
				svc := service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")
				test.change(&svc)
				w.Set([]lb.Service{svc})
				w.run()
				time.Sleep(2 * time.Millisecond)
				vip := svc.Address.String()
				w.expect(vip+" 10.0.0.1:80 "+test.want, vip+" 10.0.0.2:80 perhaps healthy")
				w.breaks("10.0.0.1", context.DeadlineExceeded)
				w.breaks("10.0.0.2", context.DeadlineExceeded)
				time.Sleep(10 * time.Millisecond)
				w.expect() // no probe brought anything that isn't known
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 5 * time.Millisecond
		w.config.Earlier = map[string]State{Identity(&own, own.Backends[0]): dead}
		w.Set([]lb.Service{own})
		w.run()
		time.Sleep(10 * time.Millisecond)
		w.reported()
		time.Sleep(1100 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 healthy") // by two successes
		w.Set(nil)
		w.Set([]lb.Service{own})
		time.Sleep(2 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps unhealthy", "10.1.1.1 10.0.0.2:80 perhaps unhealthy")
	})
}
