// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// emulator is the QEMU of an architecture with the machine and processor that it emulates,
// and the machine's console.
type emulator struct{ program, machine, processor, console string }

// emulators are by GOARCH.
func emulators() map[string]emulator {
	return map[string]emulator{
		"amd64": {"qemu-system-x86_64", "q35", "qemu64", "ttyS0"},
		"arm64": {"qemu-system-aarch64", "virt", "cortex-a72", "ttyAMA0"},
	}
}

// machine is a guest that runs its first process and is gone.
type machine struct {
	emulator
	kernel, initramfs string
	// log is the file for what kernel and first process write to the console.
	log string
}

// run boots the guest and copies what its tests print to output. The caller's goroutine
// is locked to its thread: if the process dies, QEMU does.
func (m machine) run(ctx context.Context, output io.Writer) error {
	var complaints bytes.Buffer
	// Clusters are tested at the same time, and mind being late.
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "5", m.program}, m.options()...)...)
	cmd.Stdout, cmd.Stderr = output, &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", m.program, err, complaints.Bytes())
	}
	return nil
}

// options describe the smallest machine that serves: processor, memory, a console, and a
// port for the tests' output. A guest that panics is reset, which ends QEMU.
func (m machine) options() []string {
	return []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", "tcg", "-machine", m.machine, "-cpu", m.processor, "-smp", "1", "-m", "2048",
		"-kernel", m.kernel, "-initrd", m.initramfs,
		"-append", "console=" + m.console + " quiet loglevel=4 panic=-1 mitigations=off",
		"-serial", "file:" + m.log,
		// A port on standard input and output would block at the end of the input.
		"-chardev", "file,id=output,path=/dev/fd/1",
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=output,name=output",
	}
}

// lastWords is the end of the console's output.
func (m machine) lastWords() string {
	const enough = 4000
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
