// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ClaimProcessor gives the calling thread the last processor that it may use
// (the first one has most of the machine's other work) before all ordinary
// processes, so that the time that passes is the time that packets take. The
// receivers' soft interrupts run where the sender does. It is given back when
// the thread ends.
func ClaimProcessor() error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("processor affinity: %w", err)
	}
	last := 0
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			last = cpu
		}
	}
	var one unix.CPUSet
	one.Set(last)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("processor affinity: %w", err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	// Without the right to it (a container) the figures are noisier, not wrong.
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("real-time priority: %w", err)
	}
	return nil
}

// OnProcessor calls fn on a thread that has claimed a processor.
func OnProcessor(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock the thread ends with the goroutine
		if err := ClaimProcessor(); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}
