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
	w := &world{t: t, trouble: make(map[netip.Addr]error), takes: time.Millisecond / 10}
	w.Monitor = New(Config{
		Paths: w, Prober: func(*lb.HealthCheck) Prober { return w }, Probes: 1000,
		Report: w.take, Log: slog.New(slog.DiscardHandler),
	})
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
		if targets, _ := w.size(); w.open != 0 || targets != 0 {
			w.t.Errorf("%d paths are open at the end, to %d targets", w.open, targets)
		}
	})
}

// size returns how many targets are probed, and how many backends hang on them.
func (w *world) size() (targets, members int) {
	w.Monitor.mu.Lock()
	defer w.Monitor.mu.Unlock()
	return len(w.targets), len(w.members)
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

func (w *world) Probe(ctx context.Context, path Path) error {
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

func (w *world) take(take func() []Verdict) {
	verdicts := take()
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
		if v.Silent {
			word = "silent"
		}
		if v.Share != lb.WholeShare {
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

// addresses are that many backends.
func addresses(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("10.%d.%d.%d", 2+i>>16, i>>8&0xff, i&0xff)
	}
	return all
}
