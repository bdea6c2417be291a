// SPDX-License-Identifier: Apache-2.0

// Package forward compares the throughput of Fairlead through a veth pair with that
// of a bare reflector, iptables, nftables and IPVS. cmd/fairlab calls Run.
//
// A tester sends packets that are made in the kernel through a veth pair to a
// device under test, which sends them back; the tester counts arriving packets (RFC
// 2544, section 6). Each device has a lab of its own, with a tester.
// Everything runs on one processor, one packet after the other: the time of a
// packet is the sum of sender, device and sink, so the device's own time is the
// difference to a run without a device.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
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
	// Trials is the number of rounds, Duration the time of one measurement, and Pause the time
	// before it; 0: as usual.
	Trials          int
	Duration, Pause time.Duration
}

// Check returns an error for a device that there isn't.
func (c *Config) Check() error {
	_, err := chooseDevices(c.Devices)
	return err
}

// chooseDevices returns the named devices, or all that every kernel has.
func chooseDevices(names []string) ([]device, error) {
	all := devices()
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(d device) bool { return d.onRequest }), nil
	}
	var chosen []device
	for _, name := range names {
		i := slices.IndexFunc(all, func(d device) bool { return d.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no device is called %q: there are %s", name, strings.Join(deviceNames(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func deviceNames(list []device) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.name
	}
	return names
}

// Run measures.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	devices, err := chooseDevices(cfg.Devices)
	if err != nil {
		return nil, err
	}
	p := newPlan(cfg.Quick, devices)
	p.rounds, p.duration = cmp.Or(cfg.Trials, p.rounds), cmp.Or(cfg.Duration, p.duration)
	b, _ := p.bench(cfg)
	return bench.Run(ctx, cfg.Config, b)
}

type plan struct {
	devices []device
	cases   [][]conditions
	rounds  int
	// duration of one measurement; warmUp precedes the first.
	warmUp, duration time.Duration
	// fill is a longer warm-up for stateful devices before new flows are measured:
	// their tables hold the flows of the last seconds, as in steady operation (the
	// kernel keeps an unanswered UDP flow for 30 s).
	fill time.Duration
}

func newPlan(quick bool, devices []device) plan {
	if quick {
		return plan{devices, cases([]string{"64", "128"}, []string{"64"}), 4, 50 * time.Millisecond, 150 * time.Millisecond, 8 * time.Second}
	}
	return plan{devices, cases(frameSizes, frameSizes), 5, 200 * time.Millisecond, 400 * time.Millisecond, 15 * time.Second}
}

// bench compares all devices under the same conditions. A device's testbed is built when it is
// first measured, and stays.
func (p plan) bench(cfg Config) (b bench.Bench[rate], testbeds []*testbed) {
	testbeds = make([]*testbed, len(p.devices))
	for i, d := range p.devices {
		testbeds[i] = &testbed{device: d}
	}
	var table connectionTable
	b = bench.Bench[rate]{
		Name: "forward",
		Stage: bench.Stage{Remove: func(ctx context.Context) error {
			var errs []error
			for _, t := range testbeds {
				errs = append(errs, t.remove(ctx))
			}
			return errors.Join(append(errs, table.restore())...)
		}},
		Report: func(r *bench.Report, found bench.Found[rate]) error { return findings{p, found}.report(r) },
	}
	for _, compared := range p.cases {
		g := bench.Group[rate]{Name: compared[0].String(), Rounds: p.rounds}
		for _, c := range compared {
			for _, t := range testbeds {
				if t.device.in(c) {
					g.Cells = append(g.Cells, p.cell(cfg, c, t, &table))
				}
			}
		}
		if len(g.Cells) > 0 {
			b.Groups = append(b.Groups, g)
		}
	}
	return b, testbeds
}

func (p plan) cell(cfg Config, c conditions, t *testbed, table *connectionTable) bench.Cell[rate] {
	r := &run{testbed: t}
	topology := t.device.topology()
	return bench.Cell[rate]{
		Name: c.cell(t.device.name), Reference: t.device.name == noDevice, Programs: append(topology.Programs(), t.device.programs...),
		Stage: bench.Stage{
			Setup: func(ctx context.Context) error {
				if err := t.build(ctx, cfg.Labs); err != nil {
					return err
				}
				warmUp := p.warmUp
				if t.device.stateful && c.flows == newFlows {
					// The device has made the kernel load its connection tracking.
					if err := table.widen(); err != nil {
						return err
					}
					warmUp = max(warmUp, p.fill)
				}
				loads := []wire.Load{c.load(t.device, 0)}
				if c.two {
					loads = append(loads, c.load(t.device, 1))
				}
				if err := r.open(loads...); err != nil {
					return err
				}
				_, err := r.send(0) // says how many frames a duration takes
				if err == nil {
					_, err = r.measure(ctx, warmUp)
				}
				return err
			},
			Remove: func(context.Context) error { return r.close() },
		},
		Measure: func(ctx context.Context) (rate, error) {
			if err := netlab.Sleep(ctx, cfg.Pause); err != nil {
				return rate{}, err
			}
			return r.measure(ctx, p.duration)
		},
	}
}

// The kernel's connection table belongs to the whole machine. With its default size
// iptables and nftables would drop new flows after a second, or search long chains.
const (
	conntrackMax     = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/proc/sys/net/netfilter/nf_conntrack_buckets"

	wantedConnections = 3 * newFlows // of three devices
	wantedBuckets     = newFlows / 4
)

// connectionTable has the former values of the sysctls that were raised, by their paths.
type connectionTable map[string]string

// widen makes the connection table large enough for new flows.
func (t *connectionTable) widen() error {
	if *t == nil {
		*t = connectionTable{}
	}
	return errors.Join(t.raise(conntrackMax, wantedConnections), t.raise(conntrackBuckets, wantedBuckets))
}

// raise sets a sysctl to at least the wanted value.
func (t connectionTable) raise(path string, wanted int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	old := strings.TrimSpace(string(text))
	value, err := strconv.Atoi(old)
	if err == nil && value < wanted {
		t[path] = old
		err = os.WriteFile(path, strconv.AppendInt(nil, int64(wanted), 10), 0o644)
	}
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", path, err)
	}
	return nil
}

// restore sets the sysctls back.
func (t connectionTable) restore() error {
	var errs []error
	for path, old := range t {
		errs = append(errs, os.WriteFile(path, []byte(old), 0o644))
	}
	return errors.Join(errs...)
}
