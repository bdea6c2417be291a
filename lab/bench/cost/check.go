// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/health/check"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// CheckConfig configures the measurement of health checks.
type CheckConfig struct {
	bench.Config
	// Servers is the command, with its arguments, that runs ServeChecks.
	Servers []string
	// Backends is the number of backends, each of which is checked once a second.
	Backends int
}

type checkPlan struct {
	// warmUp covers the first check of every backend.
	warmUp time.Duration
	rounds int
	round  time.Duration
}

func newCheckPlan(quick bool) checkPlan {
	if quick {
		return checkPlan{warmUp: 3 * time.Second, rounds: 3, round: 4 * time.Second}
	}
	return checkPlan{warmUp: 5 * time.Second, rounds: 7, round: 10 * time.Second}
}

// maxBackends is the number of addresses of backendAt.
const maxBackends = 1 << 16

// Checks measures the cost of health checks: the processor time of a monitor that checks
// thousands of backends every second, the kernel's work for its sockets included. The
// backends are addresses of the loopback interface; one other process, whose time isn't
// counted, answers for all. Checks leaves nothing, also if it fails or ctx ends.
func Checks(ctx context.Context, cfg CheckConfig) (report *bench.Report, err error) {
	if cfg.Backends < 1 || cfg.Backends > maxBackends {
		return nil, fmt.Errorf("%d backends: want 1 to %d", cfg.Backends, maxBackends)
	}
	report, err = bench.NewReport("health", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	servers, err := startServers(ctx, cfg.Servers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	return report, measureChecks(ctx, cfg, newCheckPlan(cfg.Quick), servers.port, report)
}

func measureChecks(ctx context.Context, cfg CheckConfig, p checkPlan, port uint16, report *bench.Report) error {
	for _, kind := range []lb.HealthType{lb.HealthTCP, lb.HealthHTTP} {
		cfg.Log("%s: %d backends each second, %d rounds of %s", kind, cfg.Backends, p.rounds, p.round)
		found, err := measureCheck(ctx, kind, cfg.Backends, port, p)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := found.report(report, kind, cfg.Backends); err != nil {
			return err
		}
	}
	return nil
}

// checkFindings are the rounds of one kind of check.
type checkFindings struct {
	busy, passed   bench.Runs // seconds of processor time, and of time
	probes, failed bench.Runs
}

// tolerable is the share of probes that may fail because other work on the machine
// delayed the answers.
const tolerable = 0.01

func measureCheck(ctx context.Context, kind lb.HealthType, backends int, port uint16, p checkPlan) (checkFindings, error) {
	ctx, stop := context.WithCancel(ctx)
	var counts probeCounts
	monitor := health.New(health.Config{
		Paths: health.DirectPaths{}, Probes: check.MaxProbes(),
		Prober: func(c *lb.HealthCheck) health.Prober { return countingProber{check.New(c), &counts} },
		Report: func(take func() []health.Verdict) { take() }, Log: slog.New(slog.DiscardHandler),
	})
	monitor.Set([]lb.Service{checked(kind, backends, port)})
	var running sync.WaitGroup
	running.Go(func() { monitor.Run(ctx) })
	defer running.Wait()
	defer stop()
	var found checkFindings
	last, err := sampleAfter(ctx, &counts, p.warmUp)
	if err != nil {
		return found, err
	}
	for range p.rounds {
		now, err := sampleAfter(ctx, &counts, p.round)
		if err != nil {
			return found, err
		}
		found.add(last, now)
		last = now
	}
	if failed, made := found.failed.Median(), found.probes.Median(); failed > made*tolerable {
		return found, fmt.Errorf("%g of %g probes failed", failed, made)
	}
	return found, nil
}

// probeCounts counts probes, and those that failed.
type probeCounts struct{ probes, failures atomic.Uint64 }

// countingProber counts its probes.
type countingProber struct {
	health.Prober
	counts *probeCounts
}

// Probe implements health.Prober.
func (p countingProber) Probe(ctx context.Context, path health.Path) error {
	err := p.Prober.Probe(ctx, path)
	p.counts.probes.Add(1)
	if err != nil {
		p.counts.failures.Add(1)
	}
	return err
}

// sample holds the counts at one time.
type sample struct {
	at               time.Time
	busy             time.Duration
	probes, failures uint64
}

// sampleAfter waits and takes a sample.
func sampleAfter(ctx context.Context, counts *probeCounts, wait time.Duration) (sample, error) {
	if err := netlab.Sleep(ctx, wait); err != nil {
		return sample{}, err
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return sample{}, fmt.Errorf("processor time: %w", err)
	}
	busy := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return sample{at: time.Now(), busy: busy, probes: counts.probes.Load(), failures: counts.failures.Load()}, nil
}

func (f *checkFindings) add(from, to sample) {
	f.busy = append(f.busy, (to.busy - from.busy).Seconds())
	f.passed = append(f.passed, to.at.Sub(from.at).Seconds())
	f.probes = append(f.probes, float64(to.probes-from.probes))
	f.failed = append(f.failed, float64(to.failures-from.failures))
}

// report adds the results and verdicts.
func (f *checkFindings) report(r *bench.Report, kind lb.HealthType, backends int) error {
	labels := map[string]string{"check": kind.String(), "backends": fmt.Sprint(backends)}
	var cores, each, rate bench.Runs
	for i := range f.busy {
		cores = append(cores, f.busy[i]/f.passed[i])
		each = append(each, f.busy[i]/f.probes[i]*1e6)
		rate = append(rate, f.probes[i]/f.passed[i])
	}
	r.Add("cost", "cores", cores, labels)
	r.Add("probe_cost", "µs/probe", each, labels)
	r.Add("rate", "probes/s", rate, labels)
	r.Add("failed", "probes", f.failed, labels)
	used, err := r.AddRatio(kind.String()+"_cores", f.busy, f.passed)
	if err != nil {
		return err
	}
	r.Judge(fmt.Sprintf("processors used by %s checks of %d backends each second", kind, backends), bench.Documented, bench.AtMost(1), used)
	r.Judge(fmt.Sprintf("%s probes in a second of %d backends", kind, backends), bench.Documented, bench.AtLeast(float64(backends)), rate.Median())
	return nil
}

// checked is a service whose backends are checked each second.
func checked(kind lb.HealthType, backends int, port uint16) lb.Service {
	check := &lb.HealthCheck{Type: kind, Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	if kind == lb.HealthHTTP {
		check.Path = "/"
	}
	svc := lb.Service{
		Name: "web", VIP: lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP},
		Forward: lb.NAT, MinHealthy: 1, Health: check,
	}
	for n := range backends {
		svc.Backends = append(svc.Backends, lb.Backend{Address: backendAt(n), Port: port, Weight: 1})
	}
	return svc
}

// backendAt is an address in the loopback interface's network.
func backendAt(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 77, byte(n >> 8), byte(n)})
}
