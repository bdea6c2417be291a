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
	"fairlead.io/fairlead/lab/wire"
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

// Run builds a lab for each subject, measures, and removes it.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if cfg.Connections < 1 || cfg.Rate < minRate || cfg.Duration < silence {
		return nil, fmt.Errorf("%d connections, %d packets a second for %s: want at least 1, %d and %s", cfg.Connections, cfg.Rate, cfg.Duration, minRate, silence)
	}
	b := bench.Bench[seen]{Name: "flood", Report: report}
	for _, s := range subjects() {
		topology, err := draw(s)
		if err != nil {
			return nil, err
		}
		t := &testbed{of: s}
		b.Groups = append(b.Groups, bench.Single(bench.Cell[seen]{
			Name: s.name, Programs: topology.Programs(),
			Stage: bench.Stage{
				Setup: func(ctx context.Context) (err error) {
					if t.Lab, err = cfg.Labs.Up(ctx, cfg.Name, topology); err != nil {
						return err
					}
					return t.start(ctx, cfg.Connections)
				},
				Remove: t.remove,
			},
			Measure: func(ctx context.Context) (seen, error) { return t.measure(ctx, cfg.Rate, cfg.Duration) },
		}))
	}
	return bench.Run(ctx, cfg.Config, b)
}

// seen has the measurements of one subject.
type seen struct {
	// Broken is the number of silent connections that broke.
	Broken int
	// Rate of the flood, in packets a second.
	Rate float64
	// Before and During are the percentages of new connections to the services that failed,
	// without and with the flood, in the order of subject.opens.
	Before, During [2]float64
}

// opened counts new connections.
type opened struct{ tried, failed atomic.Int64 }

func (o *opened) share() float64 {
	return 100 * float64(o.failed.Load()) / float64(max(1, o.tried.Load()))
}

func report(r *bench.Report, found bench.Found[seen]) error {
	for _, of := range subjects() {
		for _, s := range found[of.name] { // one, if it was measured
			labels := map[string]string{"balancer": of.name}
			r.Add("forged_packets", "1/s", bench.Runs{s.Rate}, labels)
			r.Add("idle_broken", "connections", bench.Runs{float64(s.Broken)}, labels)
			for i, name := range []string{"others_failed", "flooded_failed"}[:len(of.opens())] {
				r.Add(name, "%", bench.Runs{s.Before[i]}, map[string]string{"balancer": of.name, "flood": "no"})
				r.Add(name, "%", bench.Runs{s.During[i]}, map[string]string{"balancer": of.name, "flood": "yes"})
			}
			if !of.kernel {
				r.Judge("idle_broken of "+of.name, bench.Documented, bench.AtMost(0), float64(s.Broken))
				r.Judge("others_failed of "+of.name, bench.Documented, bench.AtMost(1), s.During[0])
			}
		}
	}
	return nil
}

// start waits for the services, and opens the connections that are silent later.
func (t *testbed) start(ctx context.Context, connections int) error {
	// The flood enters the switch from a program.
	err := bench.OnInterface(t.Lab, "switch", "router", func(dev *net.Interface) error { return wire.AttachSwitch(dev.Index) })
	if err != nil {
		return err
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	t.silent, err = t.openAll(ctx, connections)
	return err
}

func (t *testbed) remove(ctx context.Context) error {
	for _, conn := range t.silent {
		if conn != nil {
			_ = conn.Close()
		}
	}
	if t.Lab == nil {
		return nil
	}
	return t.Down(ctx)
}

// measure runs one subject.
func (t *testbed) measure(ctx context.Context, rate int, duration time.Duration) (s seen, err error) {
	const quiet = 3 * time.Second
	var before, during [2]opened
	if err := t.openNew(ctx, quiet, &before); err != nil {
		return s, err
	}
	group, within := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		s.Rate, err = t.flood(within, rate, duration)
		return err
	})
	group.Go(func() error { return t.openNew(within, duration, &during) })
	group.Go(func() (err error) {
		s.Broken, err = t.speak(within, t.silent, duration)
		return err
	})
	err = group.Wait()
	for i := range before {
		s.Before[i], s.During[i] = before[i].share(), during[i].share()
	}
	return s, err
}

// ready waits until the services answer some times in a row: a connection is to one of the
// servers at random.
func (t *testbed) ready(ctx context.Context) error {
	for _, port := range t.of.opens() {
		err := bench.Await(ctx, readyTimeout, 100*time.Millisecond, func(ctx context.Context) error {
			for range 16 {
				conn, err := t.open(ctx, port)
				if err != nil {
					return fmt.Errorf("port %d doesn't answer: %w", port, err)
				}
				_ = conn.Close()
			}
			return nil
		})
		if err != nil {
			return err
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
		if err := netlab.Sleep(ctx, silence); err != nil {
			return 0, err
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
