// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// emulator is the QEMU of an architecture with the machine and processors that it emulates,
// and the parameters of their kernels.
type emulator struct{ program, machine, processor, parameters string }

// emulators are by GOARCH. On x86 the kernel is to clear memory by plain instructions (it doesn't
// have the feature rep_good, number 112): emulated string instructions are slower. It isn't to check
// that its timer ticks: it panics if the emulator waits for a processor meanwhile.
func emulators() map[string]emulator {
	return map[string]emulator{
		"amd64": {"qemu-system-x86_64", "q35", "qemu64", "console=ttyS0 clearcpuid=112 no_timer_check"},
		"arm64": {"qemu-system-aarch64", "virt", "cortex-a72", "console=ttyAMA0"},
	}
}

// parameters of all kernels. The last ones save an emulated processor work: clearing
// memory that is overwritten, waiting for grace periods, audit records.
const parameters = "quiet loglevel=4 panic=-1 mitigations=off init_on_alloc=0 rcupdate.rcu_expedited=1 audit=0"

// machine is a guest that runs its first process and is gone.
type machine struct {
	emulator
	kernel, initramfs string
	// log is the file for the console output of kernel and first process.
	log string
	// process is the emulator's, 0 before it runs.
	process atomic.Int32
}

// run boots the guest and copies its tests' output. The caller's goroutine
// is locked to its thread: if the process dies, QEMU does.
func (m *machine) run(ctx context.Context, output io.Writer) error {
	var complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, m.program, m.options()...)
	cmd.Stdout, cmd.Stderr = output, &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	if err == nil {
		m.process.Store(int32(cmd.Process.Pid))
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", m.program, err, complaints.Bytes())
	}
	return nil
}

// processorTime is the emulator's processor time, of all processors together; 0 once it has
// ended.
func (m *machine) processorTime() time.Duration {
	const processClock = 2 // of all threads: clock_getcpuclockid(3)
	var used unix.Timespec
	if err := unix.ClockGettime(^m.process.Load()<<3|processClock, &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// options describe the smallest machine that serves: processor, memory, a console, and a port
// for the tests' output. A guest that panics is reset, which ends QEMU. Two processors cost half
// as much again for the same tests.
func (m *machine) options() []string {
	return []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", "tcg", "-machine", m.machine, "-cpu", m.processor, "-smp", "1", "-m", "2048",
		"-kernel", m.kernel, "-initrd", m.initramfs,
		"-append", m.parameters + " " + parameters,
		"-serial", "file:" + m.log,
		// A port on standard input and output would block at the end of the input.
		"-chardev", "file,id=output,path=/dev/fd/1",
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=output,name=output",
	}
}

// lastWords is the end of the console's output.
func (m *machine) lastWords() string {
	const enough = 4000
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
