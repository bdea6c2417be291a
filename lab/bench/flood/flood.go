// SPDX-License-Identifier: Apache-2.0

// Package flood measures the effect of a flood of SYNs, or of datagrams that servers
// answer, with forged addresses to one service on another one of the same balancer. In a lab connections to the second
// service are silent while the first one is flooded, and then speak; honest clients
// open new connections to both. Fairlead's stateful modes and the kernel's connection
// tracking, as kube-proxy uses it, get the same flood. cmd/fairlab calls Run.
package flood

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// Config configures Run.
type Config struct {
	bench.Config
	// Name of the labs, which must not exist yet.
	Name string
	// Connections are silent during the flood.
	Connections int
	// Rate is the number of forged packets a second, as far as the machine can make them.
	Rate int
	// Duration of the flood.
	Duration time.Duration
}

const (
	// silence is how long connections don't send.
	silence = 10 * time.Second
	// newPerSecond is the number of new connections a second to each service.
	newPerSecond = 20
	// timeout bounds connecting, which includes two retransmitted SYNs, and answers.
	timeout = 5 * time.Second
	dialers = 64
	// readyTimeout is how long a new lab's services may take to answer.
	readyTimeout = 20 * time.Second
)

// Run builds a lab for each subject, measures, and removes it, also when it fails or ctx
// ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if cfg.Connections < 1 || cfg.Rate < minRate || cfg.Duration < silence {
		return nil, fmt.Errorf("%d connections, %d packets a second for %s: want at least 1, %d and %s", cfg.Connections, cfg.Rate, cfg.Duration, minRate, silence)
	}
	var programs []string
	for _, s := range subjects() {
		topology, err := draw(s)
		if err != nil {
			return nil, err
		}
		programs = append(programs, topology.Programs()...)
	}
	if err := netlab.CheckPrograms(programs...); err != nil {
		return nil, err
	}
	report, err := cfg.NewReport("flood")
	if err != nil {
		return nil, err
	}
	for _, s := range subjects() {
		seen, err := cfg.measure(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		seen.report(report, s)
	}
	return report, nil
}

// seen has the measurements of one subject.
type seen struct {
	connections, broken int
	// rate of the flood, in packets a second.
	rate float64
	// before and during are the new connections to the services without and with the flood,
	// in the order of subject.opens.
	before, during [2]opened
}

// opened counts new connections.
type opened struct{ tried, failed atomic.Int64 }

func (o *opened) share() float64 {
	return 100 * float64(o.failed.Load()) / float64(max(1, o.tried.Load()))
}

func (s *seen) report(r *bench.Report, of subject) {
	labels := map[string]string{"balancer": of.name}
	r.Add("forged_packets", "1/s", bench.Runs{s.rate}, labels)
	r.Add("idle_broken", "connections", bench.Runs{float64(s.broken)}, labels)
	for i, name := range []string{"others_failed", "flooded_failed"}[:len(of.opens())] {
		for _, phase := range []struct {
			flood string
			count *opened
		}{{"no", &s.before[i]}, {"yes", &s.during[i]}} {
			r.Add(name, "%", bench.Runs{phase.count.share()}, map[string]string{"balancer": of.name, "flood": phase.flood})
		}
	}
	if !of.kernel {
		r.Judge("idle_broken of "+of.name, bench.Documented, bench.AtMost(0), float64(s.broken))
		r.Judge("others_failed of "+of.name, bench.Documented, bench.AtMost(1), s.during[0].share())
	}
}

// measure runs one subject.
func (c *Config) measure(ctx context.Context, of subject) (_ *seen, err error) {
	c.Log("%s: building the lab", of.name)
	t, err := newTestbed(ctx, c, of)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Down(context.WithoutCancel(ctx))) }()
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	conns, err := t.openAll(ctx, c.Connections)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	s := &seen{connections: len(conns)}
	c.Log("%s: %d connections are open", of.name, len(conns))
	const quiet = 3 * time.Second
	if err := t.openNew(ctx, quiet, &s.before); err != nil {
		return nil, err
	}
	group, within := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		s.rate, err = t.flood(within, c.Rate, c.Duration)
		return err
	})
	group.Go(func() error { return t.openNew(within, c.Duration, &s.during) })
	group.Go(func() error {
		s.broken, err = t.speak(within, conns, c.Duration)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	c.Log("%s: %.0f packets a second broke %d connections; %.1f %% of new ones failed", of.name, s.rate, s.broken, s.during[0].share())
	return s, nil
}

// ready waits until the services answer some times in a row: a connection is to one of the
// servers at random.
func (t *testbed) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("the services don't answer"))
	defer cancel()
	for _, port := range t.of.opens() {
		for answers := 0; answers < 16; answers++ {
			conn, err := t.open(ctx, port)
			if err == nil {
				_ = conn.Close()
				continue
			}
			answers = -1
			select {
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// openAll opens connections to the service that isn't flooded.
func (t *testbed) openAll(ctx context.Context, n int) ([]net.Conn, error) {
	conns := make([]net.Conn, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(dialers)
	for i := range conns {
		group.Go(func() (err error) {
			conns[i], err = t.open(ctx, other)
			return err
		})
	}
	return conns, group.Wait()
}

// open opens a connection to a service and gets an answer.
func (t *testbed) open(ctx context.Context, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := t.Dial(ctx, "client", "tcp", fmt.Sprintf("%s:%d", vip, port))
	if err != nil {
		return nil, err
	}
	if err := exchange(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// exchange sends a line and returns an error unless the echo server sends it back.
func exchange(conn net.Conn) error {
	const line = "line\n"
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(line)); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasSuffix(answer, line) {
		err = fmt.Errorf("answer %q to %q", answer, line)
	}
	return err
}

// speak has all connections speak after each silence and returns how many broke.
func (t *testbed) speak(ctx context.Context, conns []net.Conn, duration time.Duration) (broken int, err error) {
	dead := make([]bool, len(conns))
	for end := time.Now().Add(duration); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(silence):
		}
		var group errgroup.Group
		group.SetLimit(dialers)
		for i, conn := range conns {
			group.Go(func() error {
				dead[i] = dead[i] || exchange(conn) != nil
				return nil
			})
		}
		_ = group.Wait() // which has no error
	}
	for _, d := range dead {
		if d {
			broken++
		}
	}
	return broken, nil
}

// openNew opens and closes connections to the services for a while and counts them.
func (t *testbed) openNew(ctx context.Context, duration time.Duration, counts *[2]opened) error {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(time.Second / newPerSecond)
	defer tick.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for i, port := range t.of.opens() {
			all.Go(func() {
				counts[i].tried.Add(1)
				conn, err := t.open(ctx, port)
				if err != nil {
					counts[i].failed.Add(1)
					return
				}
				_ = conn.Close()
			})
		}
	}
	return nil
}
