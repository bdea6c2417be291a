// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/health/probe"
	"fairlead.io/fairlead/internal/lb"
)

// findings are the rounds of one kind of check.
type findings struct {
	busy, passed bench.Runs // seconds of processor time, and of time
	probes       bench.Runs
	failed       bench.Runs // those of the probes
}

// tolerable is the share of probes that may fail, because other work on the
// machine kept the servers from answering in time. What more of them cost is
// another question.
const tolerable = 0.01

// measure probes for some rounds.
func measure(ctx context.Context, kind lb.HealthType, backends int, port uint16, p plan) (findings, error) {
	ctx, stop := context.WithCancel(ctx)
	monitor := health.New(health.Config{
		Paths: health.DirectPaths{}, Prober: probe.New, Probes: probe.Most(),
		Report: func([]health.Verdict) {}, Log: slog.New(slog.DiscardHandler),
	})
	monitor.Set([]lb.Service{checked(kind, backends, port)})
	var running sync.WaitGroup
	running.Go(func() { monitor.Run(ctx) })
	defer running.Wait()
	defer stop()
	var found findings
	last, err := observe(ctx, monitor, p.warmUp)
	if err != nil {
		return found, err
	}
	for range p.rounds {
		now, err := observe(ctx, monitor, p.round)
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

// moment is what has been used and done until then.
type moment struct {
	at     time.Time
	busy   time.Duration
	totals health.Totals
}

// observe waits and then looks.
func observe(ctx context.Context, monitor *health.Monitor, wait time.Duration) (moment, error) {
	select {
	case <-ctx.Done():
		return moment{}, ctx.Err()
	case <-time.After(wait):
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return moment{}, fmt.Errorf("processor time: %w", err)
	}
	busy := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return moment{at: time.Now(), busy: busy, totals: monitor.Totals()}, nil
}

func (f *findings) add(from, to moment) {
	f.busy = append(f.busy, (to.busy - from.busy).Seconds())
	f.passed = append(f.passed, to.at.Sub(from.at).Seconds())
	f.probes = append(f.probes, float64(to.totals.Probes-from.totals.Probes))
	f.failed = append(f.failed, float64(to.totals.Failures-from.totals.Failures))
}

// report adds what was found, and judges it.
func (f *findings) report(r *bench.Report, kind lb.HealthType, backends int) error {
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
	const source = "docs/benchmarks.md"
	r.Judge(fmt.Sprintf("processors used by %s checks of %d backends each second", kind, backends), source, bench.AtMost(1), used)
	r.Judge(fmt.Sprintf("%s probes in a second of %d backends", kind, backends), source, bench.AtLeast(float64(backends)), rate.Median())
	return nil
}

// checked is a service whose backends all are checked each second.
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

// backendAt is an address of the loopback interface's network, which all are the
// machine's own.
func backendAt(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 77, byte(n >> 8), byte(n)})
}
