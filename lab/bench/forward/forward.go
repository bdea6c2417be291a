// SPDX-License-Identifier: Apache-2.0

// Package forward compares the throughput of Fairlead through a veth pair with that
// of a bare reflector, iptables, nftables and IPVS. cmd/fairlab calls Run.
//
// A tester sends packets that are made in the kernel through a veth pair to a
// device under test, which sends them back; the tester counts arriving packets (RFC
// 2544, section 6). Each device has a network namespace and a veth pair of its own.
// Everything runs on one processor, one packet after the other: the time of a
// packet is the sum of sender, device and sink, so the device's own time is the
// difference to a run without a device.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
)

// Config configures Run.
type Config struct {
	bench.Config
	// Devices are the names of the devices to compare; none means all that every kernel has.
	Devices []string
	// Sizes are the frame sizes to send; none means the plan's.
	Sizes []string
	// Established leaves out TCP and new flows.
	Established bool
}

// Check returns an error for a device or a frame size that there isn't.
func (c *Config) Check() error {
	_, err := newPlan(*c)
	return err
}

// Run builds the network, measures and removes the network, also if it fails or ctx
// ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	var programs []string
	for _, d := range p.devices {
		programs = append(programs, d.programs...)
	}
	if err := netlab.CheckPrograms(programs...); err != nil {
		return nil, err
	}
	report, err := cfg.NewReport("forward")
	if err != nil {
		return nil, err
	}
	found, err := measure(ctx, cfg, p)
	if err != nil {
		return nil, err
	}
	return report, found.report(report)
}

func measure(ctx context.Context, cfg Config, p plan) (found findings, err error) {
	cfg.Log("building %d devices under test", len(p.devices))
	b, err := newTestbed(ctx, cfg.Labs, p.devices)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	// The devices have made the kernel load its connection tracking.
	restore, err := p.widenConntrack()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	found = findings{}
	for i, c := range p.cases {
		cfg.Log("%d of %d: %s", i+1, len(p.cases), c)
		if found[c], err = b.compare(ctx, c, p); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
	}
	return found, nil
}

// compare measures all devices under the same conditions: a warm-up of each, then
// the rounds.
func (b *testbed) compare(ctx context.Context, c conditions, p plan) (_ map[string]rates, err error) {
	runs := make([]*run, 0, len(b.links))
	defer func() {
		for _, r := range runs {
			err = errors.Join(err, r.close())
		}
	}()
	found := make(map[string]rates, len(b.links))
	for _, w := range b.links {
		r, err := newRun(b.lab, w, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.device.name, err)
		}
		runs = append(runs, r)
		if err := r.warmUp(ctx, p.warmUpOf(w.device, c)); err != nil {
			return nil, fmt.Errorf("%s: %w", w.device.name, err)
		}
	}
	return found, bench.Alternate(ctx, p.rounds, runs, func(r *run) error {
		name := r.link.device.name
		rate, err := r.send(r.frames(p.duration))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found[name] = found[name].add(rate)
		return nil
	})
}

// firstFrames is the number of frames of the first warm-up, which measures how many
// frames a duration takes.
const firstFrames = 1 << 14

// warmUpStep is the longest part of a warm-up, in which a device may get slower.
const warmUpStep = 500 * time.Millisecond

type rate struct {
	perSecond float64 // frames that reached the sink
	lost      float64 // share of the frames that didn't
}

// run sends one load over one link.
type run struct {
	lab    *netlab.Lab
	link   *link
	sender *wire.Sender
	// perFrame is the time of a frame in the last measurement, in nanoseconds.
	perFrame float64
}

func newRun(lab *netlab.Lab, w *link, c conditions) (*run, error) {
	r := &run{lab: lab, link: w}
	return r, lab.Do(testerHost, func() error {
		dev, err := net.InterfaceByName(w.testerEnd)
		if err != nil {
			return err
		}
		r.sender, err = wire.NewSender(dev.Index, c.load(w))
		return err
	})
}

// warmUp sends for about d.
func (r *run) warmUp(ctx context.Context, d time.Duration) error {
	if _, err := r.send(firstFrames); err != nil {
		return err
	}
	for start, left := time.Now(), d; left > 0; left = d - time.Since(start) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := r.send(r.frames(min(left, warmUpStep))); err != nil {
			return err
		}
	}
	return nil
}

// frames is the number of frames that take about d.
func (r *run) frames(d time.Duration) int {
	return max(firstFrames, int(float64(d.Nanoseconds())/r.perFrame))
}

// send sends frames and counts those that arrive.
func (r *run) send(frames int) (found rate, err error) {
	err = r.lab.Do(testerHost, func() error {
		if err := bench.ClaimProcessor(); err != nil {
			return err
		}
		sentBefore, receivedBefore, err := r.counts()
		if err != nil {
			return err
		}
		if r.perFrame, err = r.sender.Send(frames); err != nil {
			return err
		}
		sent, err := r.sender.Sent()
		if err != nil {
			return err
		}
		received, err := r.residual(receivedBefore, sent-sentBefore)
		if err != nil {
			return err
		}
		if received == receivedBefore {
			return fmt.Errorf("none of %d frames came through", sent-sentBefore)
		}
		share := float64(received-receivedBefore) / float64(sent-sentBefore)
		found = rate{perSecond: 1e9 / r.perFrame * share, lost: 1 - share}
		return nil
	})
	return found, err
}

// counts are the frames sent and received so far.
func (r *run) counts() (sent, received uint64, err error) {
	if sent, err = r.sender.Sent(); err != nil {
		return 0, 0, err
	}
	got, err := r.link.sink.Received()
	return sent, got.Frames, err
}

// residual waits until all frames that were sent have arrived, or until no more do, and counts
// them (RFC 2544, section 24): a kernel under load defers packets to a thread of its own, which
// may not have run yet.
func (r *run) residual(before, sent uint64) (received uint64, err error) {
	const longest, step = 2 * time.Second, 50 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		last := received
		got, err := r.link.sink.Received()
		if err != nil {
			return 0, err
		}
		received = got.Frames
		if received-before >= sent || waited >= longest || received > before && received == last {
			return received, nil
		}
		time.Sleep(step)
	}
}

func (r *run) close() error { return r.sender.Close() }
