// SPDX-License-Identifier: Apache-2.0

// Package bench is the shared part of all benches: configuration, rounds of cells (harness.go), the
// report with its ratios and verdicts, and clients of VIPs (Load). The benches in the folders below it use
// it, and cmd/fairlab prints their reports.
//
// Absolute figures of a shared machine mean little: a bench alternates the sides
// that it compares within one run, and reports ratios. docs/reference/benchmarks.md says how
// each is measured.
package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// Config is the part of a bench's configuration that all benches have.
type Config struct {
	// Labs is where the bench builds its networks.
	Labs netlab.Labs
	// Commit of this binary, for the report.
	Commit string
	// Quick measures less, in a minute or two.
	Quick bool
	// Progress, if not nil, receives one line at each step.
	Progress func(line string)
	// Only, if not nil, matches the names of the cells to measure.
	Only *regexp.Regexp
	// Earlier, if not nil, is an incomplete report, of which finished cells aren't measured again.
	Earlier *Report
}

// Log reports progress.
func (c *Config) Log(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Milliseconds is the unit of times in reports.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// Backend returns a backend for a forwarding mode: in the modes of segments its
// address is also its tunnel end point.
func Backend(mode lb.Forward, address netip.Addr) lb.Backend {
	b := lb.Backend{Address: address, Port: 80, Weight: 1}
	if segment := mode.Overlay(); segment != lb.SegmentUnset {
		b.TunnelEnd = address
		b.MAC = lb.MAC{2, 0, 0, 0, 0, 3}
		b.Segment = lb.Segment{Type: segment, ID: 100}
	}
	return b
}

// ClaimProcessor pins the calling thread to the nth processor before the last one that it may
// use (the first one has most of the machine's other work) with real-time priority, so that
// other processes don't add to the measured time. The receivers' soft interrupts run on
// the sender's processor. The claim ends with the thread. With only one processor
// the priority stays ordinary: under load the kernel leaves packets to a thread of its own
// (ksoftirqd), which would never run (Linux 6.1 lost all packets).
func ClaimProcessor(nth int) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("processor affinity: %w", err)
	}
	var processors []int
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			processors = append(processors, cpu)
		}
	}
	if nth >= len(processors) {
		return fmt.Errorf("%d processors are needed, there are %d", nth+1, len(processors))
	}
	var claimed unix.CPUSet
	claimed.Set(processors[len(processors)-1-nth])
	if err := unix.SchedSetaffinity(0, &claimed); err != nil {
		return fmt.Errorf("processor affinity: %w", err)
	}
	if len(processors) == 1 {
		return nil
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	// Without the capability (a container) the figures are noisier.
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("real-time priority: %w", err)
	}
	return nil
}

// OnProcessor calls fn on a thread with a claimed processor.
func OnProcessor(fn func() error) error {
	return OnProcessors(1, func(int) error { return fn() })
}

// OnProcessors calls fn at once on n threads with a claimed processor each.
func OnProcessors(n int, fn func(nth int) error) error {
	var claimed sync.WaitGroup
	claimed.Add(n)
	var threads errgroup.Group
	for nth := range n {
		threads.Go(func() error {
			runtime.LockOSThread() // without an unlock the thread ends with the goroutine
			err := ClaimProcessor(nth)
			claimed.Done()
			claimed.Wait()
			if err != nil {
				return err
			}
			return fn(nth)
		})
	}
	return threads.Wait()
}
