// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/lb"
)

// second is how long one measurement of throughput takes.
const second = time.Second

// course is how the number of balancers goes while throughput is measured.
type course struct {
	// steady is how many seconds each number is measured for, periods how many
	// random numbers follow, each for so many seconds.
	steady, periods, period int
}

func newCourse(quick bool) course {
	if quick {
		return course{steady: 2, periods: 3, period: 2}
	}
	return course{steady: 5, periods: 10, period: 4}
}

// runThroughput measures whether requests a second follow the number of
// balancers: figures 6.2 and 6.4 of the dissertation.
func (s *site) runThroughput(ctx context.Context, cfg *Config, how Setting, report *bench.Report) (err error) {
	if err := s.throttle(true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.throttle(false)) }()
	load := startRequests(ctx, s.dial, s.webs())
	defer load.stop()
	c := newCourse(cfg.Quick)
	if err := s.steady(ctx, cfg, how, c, load, report); err != nil {
		return err
	}
	if err := s.respond(ctx, cfg, how, c, load, report); err != nil {
		return err
	}
	report.Add("request_failures", "connections", bench.Runs{float64(load.failed.Load())}, how.labels())
	return s.restore(ctx)
}

// steady measures each number of balancers.
func (s *site) steady(ctx context.Context, cfg *Config, how Setting, c course, load *requests, report *bench.Report) error {
	var numbers, rates bench.Runs
	for number := 1; number <= len(s.names); number++ {
		if err := s.scale(ctx, number); err != nil {
			return err
		}
		// What waits on links that are used no more is over by then.
		if err := bench.Sleep(ctx, second); err != nil {
			return err
		}
		runs, err := load.rates(ctx, c.steady)
		if err != nil {
			return err
		}
		report.Add("throughput", "requests/s", runs, how.labels("balancers", strconv.Itoa(number)))
		cfg.progress("%d balancers: %.0f requests/s", number, runs.Median())
		numbers, rates = append(numbers, float64(number)), append(rates, runs.Median())
	}
	last := len(rates) - 1
	if _, err := report.AddRatio("throughput_most_over_one", rates[last:], rates[:1]); err != nil {
		return err
	}
	report.Ratios["throughput_correlation"] = correlation(numbers, rates)
	report.Judge(fmt.Sprintf("%s: correlation of throughput and the number of balancers, each behind a link of %.0f Mbit/s", how, linkRate*8/1e6),
		"dissertation §6.3: linear", bench.AtLeast(0.99), report.Ratios["throughput_correlation"])
	return nil
}

// respond changes the number of balancers at random and measures each second,
// those of the changes too.
func (s *site) respond(ctx context.Context, cfg *Config, how Setting, c course, load *requests, report *bench.Report) error {
	var numbers, rates bench.Runs
	random := cfg.random(3)
	for period := range c.periods {
		number := another(random, len(s.fleet.are(serving)), len(s.names))
		if err := s.scale(ctx, number); err != nil {
			return err
		}
		runs, err := load.rates(ctx, c.period)
		if err != nil {
			return err
		}
		report.Add("throughput_response", "requests/s", runs,
			how.labels("balancers", strconv.Itoa(number), "period", fmt.Sprintf("%02d", period+1)))
		for _, rate := range runs {
			numbers, rates = append(numbers, float64(number)), append(rates, rate)
		}
	}
	report.Ratios["response_correlation"] = correlation(numbers, rates)
	report.Judge(fmt.Sprintf("%s: correlation of each second's throughput and the number of balancers in it while that changes at random", how),
		"dissertation, figure 6.4", bench.AtLeast(0.9), report.Ratios["response_correlation"])
	cfg.progress("throughput follows the number of balancers: correlation %.3f", report.Ratios["response_correlation"])
	return nil
}

// scale has so many balancers serve and waits until the tables say so.
func (s *site) scale(ctx context.Context, number int) error {
	now, idle := s.fleet.are(serving), s.fleet.are(drained)
	c := change{undrain, nil}
	if number < len(now) {
		c = change{drain, now[number:]}
	} else {
		c.balancers = idle[:number-len(now)]
	}
	if err := s.make(ctx, c); err != nil {
		return err
	}
	return s.await(ctx, s.tables(s.fleet))
}

// rates are the requests of each of the next seconds.
func (r *requests) rates(ctx context.Context, seconds int) (bench.Runs, error) {
	var runs bench.Runs
	ticker := time.NewTicker(second)
	defer ticker.Stop()
	last, at := r.answered.Load(), time.Now()
	for range seconds {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		now, then := r.answered.Load(), time.Now()
		runs = append(runs, float64(now-last)/then.Sub(at).Seconds())
		last, at = now, then
	}
	return runs, nil
}

// webs are the services that HTTP requests go to.
func (s *site) webs() []netip.AddrPort {
	var all []netip.AddrPort
	for _, service := range s.topology.Services {
		target := netip.AddrPortFrom(service.Address, service.Port)
		if service.Protocol == lb.TCP && service.Port == webPort && !slices.Contains(all, target) {
			all = append(all, target)
		}
	}
	return all
}
