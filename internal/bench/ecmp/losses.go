// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	// accidentLimit is how long the table may take: it covers hold times.
	accidentLimit = 5 * time.Second
)

// lossCourse is how accidents are measured.
type lossCourse struct {
	// rounds is how often each accident happens.
	rounds int
	// aftermath is how long what was done to a balancer is watched once the table
	// is right.
	aftermath time.Duration
}

func newLossCourse(quick bool) lossCourse {
	if quick {
		return lossCourse{rounds: 1, aftermath: time.Second / 2}
	}
	return lossCourse{rounds: 3, aftermath: time.Second}
}

// runLosses has balancers go in all ways under constant load.
func (s *site) runLosses(ctx context.Context, cfg *Config, how Setting, report *bench.Report) (err error) {
	load, err := sendDatagrams(ctx, s.dial, s.targets(lb.UDP))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, load.stop()) }()
	c, random := newLossCourse(cfg.Quick), cfg.random(2)
	wrong, happened := 0.0, 0
	for _, a := range s.accidents() {
		done := damage{}
		for range c.rounds {
			if err := s.suffer(ctx, cfg, c, a, random.IntN(len(s.names)), load, done); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			happened++
		}
		done.report(report, how, a)
		wrong += sum(done.all("wrong_tables"))
	}
	report.Judge(fmt.Sprintf("%s: wrong tables when balancers were lost, hung, killed, stopped or drained, %d times in all", how, happened),
		"DESIGN.md §10", bench.AtMost(0), wrong)
	return nil
}

// suffer has one accident happen, mends it, and counts what it did.
func (s *site) suffer(ctx context.Context, cfg *Config, c lossCourse, a accident, n int, load *datagrams, done damage) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	dropped, err := backlogDrops()
	if err != nil {
		return err
	}
	held := s.hold(cfg)
	held.Start(ctx, connections, 0, 0)
	w, err := s.endure(ctx, c, a, n)
	seen, stopped := held.Stop()
	if err := errors.Join(ctx.Err(), err, stopped); err != nil {
		return err
	}
	for f, last := range s.lastPackets(n) {
		if last.IsZero() {
			return fmt.Errorf("%s: the router never sent it a packet of %s", s.names[n], f)
		}
		w.outages[f] = max(0, last.Sub(w.cause))
	}
	if err := s.comeBack(ctx, c, a, n, w); err != nil {
		return err
	}
	after, err := backlogDrops()
	if err != nil {
		return err
	}
	done.add("", "tcp_connections", float64(seen.Connections))
	done.add("", "tcp_broken", float64(seen.TCPBroken()))
	done.add("", "backlog_drops", float64(after-dropped))
	if after > dropped {
		cfg.progress("meanwhile the machine dropped %d packets of whatever network: it was too busy", after-dropped)
	}
	for _, f := range families() {
		w.count(cfg, a, s.names[n], f, load, done)
	}
	return nil
}

// lastPackets are when the router sent a balancer the last packet.
func (s *site) lastPackets(n int) map[family]time.Time {
	last := map[family]time.Time{}
	for _, f := range families() {
		last[f] = s.tap.lastTo(s.topology.Host(s.names[n]).Interfaces[0].MAC, f)
	}
	return last
}

// comeBack mends an accident and waits until all is as before, and all answers
// are there.
func (s *site) comeBack(ctx context.Context, c lossCourse, a accident, n int, w *endured) error {
	w.mended = time.Now()
	if err := a.mend(ctx, n); err != nil {
		return err
	}
	if err := s.await(ctx, s.tables(s.fleet)); err != nil {
		return err
	}
	if err := bench.Sleep(ctx, c.aftermath); err != nil {
		return err
	}
	w.back = time.Now()
	return bench.Sleep(ctx, lateness)
}

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
