// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/bench/client"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// connections are held while balancers go.
	connections = 200
	// tcpPatience is how long TCP may take to repair losses.
	tcpPatience = 10 * time.Second
	// aftermath is how long what was done to a balancer is watched once the table
	// is right.
	aftermath = time.Second
	// rounds and quickRounds are how often each accident happens.
	rounds      = 3
	quickRounds = 1
)

// damage is what accidents of one kind did, by family and then by the end of the
// result's name.
type damage map[family]map[string]bench.Runs

func (d damage) add(f family, name string, v float64) {
	if d[f] == nil {
		d[f] = map[string]bench.Runs{}
	}
	d[f][name] = append(d[f][name], v)
}

// runLosses has balancers go in all ways under constant load.
func (s *site) runLosses(ctx context.Context, cfg *Config, how Setting, report *bench.Report) (err error) {
	load, err := sendDatagrams(ctx, s.dial, s.targets(lb.UDP))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, load.stop()) }()
	times, random := rounds, cfg.random(2)
	if cfg.Quick {
		times = quickRounds
	}
	for _, a := range s.accidents() {
		done := damage{}
		for range times {
			if err := s.suffer(ctx, cfg, a, random.IntN(len(s.names)), load, done); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
		done.report(report, how, a)
	}
	return nil
}

// suffer has one accident happen, and mends it.
func (s *site) suffer(ctx context.Context, cfg *Config, a accident, n int, load *datagrams, done damage) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	held := s.hold(cfg)
	held.Start(ctx, connections, 0, 0)
	w, err := s.endure(ctx, a, n)
	seen, stopped := held.Stop()
	if err := errors.Join(ctx.Err(), err, stopped); err != nil {
		return err
	}
	if err := sleep(ctx, lateness); err != nil {
		return err
	}
	for family, trial := range w.trials {
		o := trial.judge()
		lost := load.fateOf(w.cause, w.end, family)
		outage := max(0, s.tap.lastTo(s.topology.Host(s.names[n]).Interfaces[0].MAC, family).Sub(w.cause))
		if !a.stays {
			done.add(family, "outage_ms", milliseconds(outage))
			done.add(family, "table_ms", milliseconds(o.delay))
		}
		done.add(family, "lost", float64(lost.lost))
		done.add(family, "moved", float64(lost.moved))
		done.add(family, "table_events", float64(len(trial.events)))
		cfg.progress("%s when %s: %s: table right after %.0f ms, last packet %.0f ms, %d of %d datagrams lost, %d moved",
			s.names[n], a.text, family, milliseconds(o.delay), milliseconds(outage), lost.lost, lost.sent, lost.moved)
	}
	done.add("", "tcp_broken", float64(seen.TCPBroken()))
	return s.comeBack(ctx, cfg, a, n, load, done)
}

// comeBack mends an accident and counts what is lost when the balancer returns.
func (s *site) comeBack(ctx context.Context, cfg *Config, a accident, n int, load *datagrams, done damage) error {
	began := time.Now()
	if err := a.mend(ctx, n); err != nil {
		return err
	}
	if err := s.await(ctx, s.tables(s.fleet)); err != nil {
		return err
	}
	if err := sleep(ctx, aftermath); err != nil {
		return err
	}
	end := time.Now()
	if err := sleep(ctx, lateness); err != nil {
		return err
	}
	for _, f := range families() {
		back := load.fateOf(began, end, f)
		done.add(f, "return_lost", float64(back.lost))
		if back.lost > 0 {
			cfg.progress("%s comes back: %s: %d of %d datagrams lost", s.names[n], f, back.lost, back.sent)
		}
	}
	return nil
}

// endured is a window that is over.
type endured struct {
	window
	end    time.Time
	trials map[family]trial
}

// endure has an accident happen and watches until the table has been right for a
// while.
func (s *site) endure(ctx context.Context, a accident, n int) (*endured, error) {
	left := slices.Clone(s.fleet)
	if !a.stays {
		left[n] = stopped
	}
	w := &endured{window: window{before: s.tables(s.fleet), after: s.tables(left), limit: accidentLimit}}
	if err := s.open(&w.window); err != nil {
		return nil, err
	}
	if err := a.happen(ctx, n); err != nil {
		return nil, err
	}
	if a.stays {
		if err := s.settle(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.follow(ctx, &w.window); err != nil {
		return nil, err
	}
	if err := sleep(ctx, aftermath); err != nil {
		return nil, err
	}
	w.end = time.Now()
	var err error
	w.trials, err = s.close(&w.window)
	return w, err
}

// accidentLimit covers hold times.
const accidentLimit = 5 * time.Second

// hold is a load of held TCP connections.
func (s *site) hold(cfg *Config) *client.Load {
	l := &client.Load{Dial: s.dial, Patience: tcpPatience, Progress: cfg.progress}
	for _, t := range s.targets(lb.TCP) {
		l.Targets = append(l.Targets, client.Target{VIP: t, Servers: client.NewPresence(nil)})
	}
	return l
}

// targets are the echo services of a protocol.
func (s *site) targets(protocol lb.Protocol) []netip.AddrPort {
	var all []netip.AddrPort
	for _, service := range s.topology.Services {
		if service.Protocol == protocol && service.Port == echoPort {
			all = append(all, netip.AddrPortFrom(service.Address, service.Port))
		}
	}
	return all
}

// report adds what was found in a setting, and judges it.
func (d damage) report(r *bench.Report, how Setting, a accident) {
	units := map[string]string{
		"outage_ms": "ms", "table_ms": "ms", "table_events": "events",
		"lost": "datagrams", "return_lost": "datagrams", "moved": "datagrams", "tcp_broken": "connections",
	}
	for _, f := range append(families(), "") {
		labels := how.labels("family", string(f))
		if f == "" {
			labels = how.labels()
		}
		for _, name := range []string{"outage_ms", "table_ms", "table_events", "lost", "return_lost", "moved", "tcp_broken"} {
			r.Add(a.name+"_"+name, units[name], d[f][name], labels)
		}
	}
	for _, c := range a.claims {
		var all bench.Runs
		for _, runs := range d {
			all = append(all, runs[c.result]...)
		}
		_, worst := all.Bounds()
		r.Judge(fmt.Sprintf("%s: %s", how, c.text), "DESIGN.md §10", c.target, worst)
	}
}
