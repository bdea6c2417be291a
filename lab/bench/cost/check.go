// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
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
// counted, answers for all.
func Checks(ctx context.Context, cfg CheckConfig) (*bench.Report, error) {
	if cfg.Backends < 1 || cfg.Backends > maxBackends {
		return nil, fmt.Errorf("%d backends: want 1 to %d", cfg.Backends, maxBackends)
	}
	return bench.Run(ctx, cfg.Config, cfg.bench(newCheckPlan(cfg.Quick)))
}

// bench measures TCP and HTTP one after the other.
func (cfg CheckConfig) bench(p checkPlan) bench.Bench[checkRound] {
	var port uint16
	stop := func() error { return nil }
	b := bench.Bench[checkRound]{
		Name: "health",
		Stage: bench.Stage{
			Setup: func(ctx context.Context) error {
				at, end, err := startServers(ctx, cfg.Servers)
				if err == nil {
					port, stop = at, end
				}
				return err
			},
			Remove: func(context.Context) error { return stop() },
		},
		Report: func(r *bench.Report, found bench.Found[checkRound]) error {
			for _, kind := range checkKinds() {
				if err := report(r, found[kind.String()], kind, cfg.Backends); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for _, kind := range checkKinds() {
		cell := p.cell(kind, cfg.Backends, &port)
		b.Groups = append(b.Groups, bench.Group[checkRound]{Name: cell.Name, Rounds: p.rounds, Cells: []bench.Cell[checkRound]{cell}})
	}
	return b
}

func checkKinds() []lb.HealthType { return []lb.HealthType{lb.HealthTCP, lb.HealthHTTP} }

// tolerable is the share of probes that may fail because other work on the machine
// delayed the answers.
const tolerable = 0.01

// cell measures a round of a monitor that runs meanwhile and in between.
func (p checkPlan) cell(kind lb.HealthType, backends int, port *uint16) bench.Cell[checkRound] {
	var counts probeCounts
	var running sync.WaitGroup
	stop := func() {}
	return bench.Cell[checkRound]{
		Name: kind.String(),
		Stage: bench.Stage{
			Setup: func(ctx context.Context) error {
				monitor := health.New(health.Config{
					Paths: health.DirectPaths{}, Probes: check.MaxProbes(),
					Prober: func(c *lb.HealthCheck) health.Prober { return countingProber{check.New(c), &counts} },
					Report: func(take func() []health.Verdict) { take() }, Log: slog.New(slog.DiscardHandler),
				})
				monitor.Set([]lb.Service{checked(kind, backends, *port)})
				var within context.Context
				within, stop = context.WithCancel(ctx)
				running.Go(func() { monitor.Run(within) })
				return netlab.Sleep(ctx, p.warmUp)
			},
			Remove: func(context.Context) error {
				stop()
				running.Wait()
				return nil
			},
		},
		Measure: func(ctx context.Context) (round checkRound, err error) {
			before, err := counts.sample()
			if err == nil {
				err = netlab.Sleep(ctx, p.round)
			}
			if err != nil {
				return round, err
			}
			after, err := counts.sample()
			if err != nil {
				return round, err
			}
			return after.minus(before), nil
		},
	}
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

// checkRound has the seconds of processor time, and of time, and the probes and those that
// failed.
type checkRound struct{ Busy, Passed, Probes, Failed float64 }

// sample returns the counts so far.
func (c *probeCounts) sample() (checkRound, error) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return checkRound{}, fmt.Errorf("processor time: %w", err)
	}
	now := float64(time.Now().UnixNano())
	return checkRound{
		Busy: float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9, Passed: now / 1e9,
		Probes: float64(c.probes.Load()), Failed: float64(c.failures.Load()),
	}, nil
}

func (r checkRound) minus(o checkRound) checkRound {
	return checkRound{r.Busy - o.Busy, r.Passed - o.Passed, r.Probes - o.Probes, r.Failed - o.Failed}
}

// report adds the results and verdicts of a kind of check.
func report(r *bench.Report, rounds []checkRound, kind lb.HealthType, backends int) error {
	if len(rounds) == 0 {
		return nil
	}
	labels := map[string]string{"check": kind.String(), "backends": fmt.Sprint(backends)}
	var cores, each, rate, made, failed bench.Runs
	for _, one := range rounds {
		cores = append(cores, one.Busy/one.Passed)
		each = append(each, one.Busy/one.Probes*1e6)
		rate = append(rate, one.Probes/one.Passed)
		made = append(made, one.Probes)
		failed = append(failed, one.Failed)
	}
	if made.Median()*tolerable < failed.Median() {
		return fmt.Errorf("%s: %g of %g probes failed", kind, failed.Median(), made.Median())
	}
	r.Add("cost", "cores", cores, labels)
	r.Add("probe_cost", "µs/probe", each, labels)
	r.Add("rate", "probes/s", rate, labels)
	r.Add("failed", "probes", failed, labels)
	r.Ratios[kind.String()+"_cores"] = cores.Median()
	r.Judge(fmt.Sprintf("processors used by %s checks of %d backends each second", kind, backends), bench.Documented, bench.AtMost(1), cores.Median())
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
