// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/lb"
)

// world is what a Monitor under test sees: servers without a network.
type world struct {
	t *testing.T
	*Monitor
	mu sync.Mutex
	// trouble is why probes of an address fail; takes is how long they take.
	trouble map[netip.Addr]error
	takes   time.Duration
	probes  []probed
	flying  int
	peak    int
	// open counts paths that aren't released, opened all.
	open, opened int
	unreachable  error
	verdicts     []Verdict
}

type probed struct {
	target netip.AddrPort
	at     time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, trouble: make(map[netip.Addr]error), takes: time.Millisecond}
	w.Monitor = New(Config{Paths: w, Report: w.take, Log: slog.New(slog.DiscardHandler)})
	w.newProber = func(*lb.HealthCheck) prober { return w }
	return w
}

// run lets the monitor work until the end of the test, within its bubble.
func (w *world) run() {
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	w.t.Cleanup(func() {
		stop()
		<-done
		if w.open != 0 || w.Totals().Targets != 0 {
			w.t.Errorf("%d paths are open at the end, %+v", w.open, w.Totals())
		}
	})
}

func (w *world) Open(_ *lb.Service, b lb.Backend, port uint16) (Path, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unreachable != nil {
		return Path{}, nil, w.unreachable
	}
	w.open++
	w.opened++
	return Path{Target: netip.AddrPortFrom(b.Address, port)}, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
	}), nil
}

func (w *world) probe(ctx context.Context, path Path) error {
	w.mu.Lock()
	w.probes = append(w.probes, probed{path.Target, time.Now()})
	w.flying++
	w.peak = max(w.peak, w.flying)
	w.mu.Unlock()
	var err error
	select {
	case <-time.After(w.takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying--
	if err == nil {
		err = w.trouble[path.Target.Addr()]
	}
	return err
}

func (w *world) take(verdicts []Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts = append(w.verdicts, verdicts...)
}

// reported returns what was reported since it was last asked, in words and
// sorted.
func (w *world) reported() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for _, v := range w.verdicts {
		word := map[bool]string{true: "healthy", false: "unhealthy"}[v.Healthy]
		if !v.Known {
			word = "perhaps " + word
		}
		if v.Share != fullShare {
			word += fmt.Sprintf(" %d/16", v.Share)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", v.VIP.Address, v.Backend, word))
	}
	w.verdicts = nil
	slices.Sort(lines)
	return lines
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.reported()); diff != "" {
		w.t.Errorf("reported: -want +got:\n%s", diff)
	}
}

func (w *world) breaks(address string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble[netip.MustParseAddr(address)] = err
}

func (w *world) probed() []probed {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.probes
	w.probes = nil
	return all
}

// service returns one in the mode NAT with backends at these addresses.
func service(vip string, check *lb.HealthCheck, backends ...string) lb.Service {
	s := lb.Service{
		Name: vip, VIP: lb.VIP{Address: netip.MustParseAddr(vip), Port: 80, Protocol: lb.TCP},
		Forward: lb.NAT, MinHealthy: 1, Health: check,
	}
	for _, b := range backends {
		s.Backends = append(s.Backends, lb.Backend{Address: netip.MustParseAddr(b), Port: 80, Weight: 1})
	}
	return s
}

func tcpCheck() *lb.HealthCheck {
	return &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second / 2, Rise: 2, Fall: 3}
}

var errRefused = errors.New("connection refused")

// A backend that dies is reported within fall × interval, one that returns
// within rise × interval, both plus what a probe takes and the wait for others.
func TestVerdictsComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 5 * time.Millisecond
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")})
		w.run()
		time.Sleep(2 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy", "10.1.1.1 10.0.0.2:80 perhaps healthy")
		time.Sleep(5 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.2:80 healthy")
		for range 50 {
			w.breaks("10.0.0.2", errRefused)
			time.Sleep(1800 * time.Millisecond)
			w.expect()
			time.Sleep(1200*time.Millisecond + 7*time.Millisecond)
			w.expect("10.1.1.1 10.0.0.2:80 unhealthy")
			w.breaks("10.0.0.2", nil)
			time.Sleep(900 * time.Millisecond)
			w.expect()
			time.Sleep(1100*time.Millisecond + 7*time.Millisecond)
			w.expect("10.1.1.1 10.0.0.2:80 healthy")
		}
	})
}

// Probes come after the interval or up to a tenth earlier, never later.
func TestSpacingOnlyShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		probes := w.probed()
		if len(probes) < 100 || len(probes) > 112 {
			t.Errorf("%d probes in 100 s", len(probes))
		}
		for i := 1; i < len(probes); i++ {
			if gap := probes[i].at.Sub(probes[i-1].at); gap > time.Second+slack || gap < 900*time.Millisecond-slack {
				t.Errorf("%s between two probes", gap)
			}
		}
	})
}

// Slow answers take no more than the time-out, and the next probe comes as if
// the answer had been fast.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = time.Minute
		check := tcpCheck()
		check.Timeout = check.Interval
		w.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1")})
		w.run()
		time.Sleep(999 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 perhaps healthy")
		time.Sleep(3 * time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		if states := w.States(); len(states) != 1 || states[0].Reason != "timed out after 1s" || states[0].Took != time.Second {
			t.Errorf("%+v", states)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := len(w.probed()); n < 10 || n > 11 || w.peak != 1 {
			t.Errorf("%d probes, %d at the same time", n, w.peak)
		}
	})
}

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
		if totals := w.Totals(); totals.Targets != 2 || totals.Backends != 3 || w.opened != 2 {
			t.Errorf("%+v, %d paths", totals, w.opened)
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
}

// Setting the same services, or other weights, changes nothing that is known.
func TestSetKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.breaks("10.0.0.1", errRefused)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		for range 3 {
			again := service("10.1.1.1", tcpCheck(), "10.0.0.1")
			again.Backends[0].Weight = 7
			again.Health.Rise, again.Health.Fall = 1, 1
			w.Set([]lb.Service{again})
		}
		w.expect()
		if n := len(w.probed()); n != 1 || w.opened != 1 {
			t.Errorf("%d probes, %d paths", n, w.opened)
		}
		w.breaks("10.0.0.1", nil)
		time.Sleep(time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 healthy") // by the new rise
	})
}

// A check that changes begins anew, and until it knows more the backend counts
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
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy", "10.1.1.1 10.0.0.2:80 healthy")
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

func TestSlowStartIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		check := tcpCheck()
		check.SlowStart = 16 * time.Minute
		w.breaks("10.0.0.1", errRefused)
		w.Set([]lb.Service{service("10.1.1.1", check, "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		w.breaks("10.0.0.1", nil)
		time.Sleep(3 * time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 healthy 1/16")
		for n := 2; n < 16; n++ {
			time.Sleep(time.Minute)
			if n > 2 { // the first sixteenth is there at once
				w.expect(fmt.Sprintf("10.1.1.1 10.0.0.1:80 healthy %d/16", n-1))
			} else {
				w.expect()
			}
		}
		time.Sleep(2 * time.Minute)
		w.expect("10.1.1.1 10.0.0.1:80 healthy", "10.1.1.1 10.0.0.1:80 healthy 15/16")
	})
}

// A hint has a dead backend found long before its next probe; of a living one
// nothing is heard but one more probe in each interval.
func TestHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		check := tcpCheck()
		check.Interval, check.Passive = time.Minute, true
		svc := service("10.1.1.1", check, "10.0.0.1")
		w.Set([]lb.Service{svc})
		w.run()
		hint := func() { w.Hint(svc.VIP, svc.Backends[0].ID()) }
		time.Sleep(10 * time.Second)
		w.reported()
		w.probed()
		for range 1000 {
			hint()
			time.Sleep(10 * time.Millisecond)
		}
		w.expect()
		if n := len(w.probed()); n != 1 {
			t.Errorf("%d probes after hints at a living backend", n)
		}
		time.Sleep(3 * time.Minute)
		w.breaks("10.0.0.1", errRefused)
		hint()
		time.Sleep(2*check.Interval/20 + 20*time.Millisecond)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		w.Hint(svc.VIP, netip.MustParseAddrPort("10.0.0.9:80")) // of whom nobody knows
	})
}

func TestHintsNeedAPassiveCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		svc := service("10.1.1.1", tcpCheck(), "10.0.0.1")
		w.Set([]lb.Service{svc})
		w.run()
		time.Sleep(time.Second / 2)
		w.probed()
		w.Hint(svc.VIP, svc.Backends[0].ID())
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if n := len(w.probed()); n != 0 {
			t.Errorf("%d probes", n)
		}
	})
}

// addresses are that many backends.
func addresses(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("10.%d.%d.%d", 2+i>>16, i>>8&0xff, i&0xff)
	}
	return all
}

// Some of many new backends are probed at once, the others in the course of the
// interval; and never are more probes on their way than allowed.
func TestManyBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.most = 300
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
			if totals := w.Totals(); totals.Backends != 20 || totals.Targets > 20 {
				t.Errorf("%+v", totals)
			}
		}
		time.Sleep(time.Second)
		if len(w.States()) != 20 || w.open != 20 {
			t.Errorf("%d states, %d paths at the end", len(w.States()), w.open)
		}
	})
}

// A way that can't be opened is a failure, and is tried again each time.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable = errors.New("no route to 10.0.0.1")
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1")})
		w.run()
		time.Sleep(time.Second / 2)
		w.expect("10.1.1.1 10.0.0.1:80 unhealthy")
		if got := w.States()[0].Reason; got != "can't be reached: no route to 10.0.0.1" {
			t.Error(got)
		}
		w.mu.Lock()
		w.unreachable = nil
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		w.expect("10.1.1.1 10.0.0.1:80 healthy")
	})
}

// When this node runs out of files nobody is taken out.
func TestTroubleOfThisNodeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Set([]lb.Service{service("10.1.1.1", tcpCheck(), "10.0.0.1", "10.0.0.2")})
		w.run()
		time.Sleep(time.Second / 2)
		w.reported()
		w.breaks("10.0.0.1", fmt.Errorf("socket: %w", syscall.EMFILE))
		time.Sleep(time.Minute)
		w.expect()
		if totals := w.Totals(); totals.Local < 60 || totals.Failures != totals.Local {
			t.Errorf("%+v", totals)
		}
	})
}
