// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

const qemu = "qemu-system-x86_64"

// machine is a guest that runs one program and is gone.
type machine struct {
	kernel, initramfs string
	// arguments of the program can't have blanks.
	arguments []string
	// console is where the kernel's messages go.
	console string
}

// run boots the guest, copies what its program prints to output, and returns
// the program's exit status. The caller's goroutine is locked to its thread: if
// the process dies, QEMU does.
func (m machine) run(ctx context.Context, output io.Writer) (status int, err error) {
	var complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, qemu, m.options()...)
	cmd.Stdout, cmd.Stderr = output, &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("guest: %w\nconsole:\n%s", ctx.Err(), m.lastWords())
	}
	// The first process reports a status s by a debug port, and QEMU then exits
	// with 2s+1. A guest that panics is reset, which ends QEMU with 0.
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && complaints.Len() == 0 {
		return exit.ExitCode() / 2, nil
	}
	if err == nil {
		err = errors.New("reset")
	}
	return 0, fmt.Errorf("guest died: %w\n%sconsole:\n%s", err, complaints.Bytes(), m.lastWords())
}

// options describe the smallest machine that serves: processor, memory, two
// serial ports (console and output) and the port for the exit status.
func (m machine) options() []string {
	kernelLine := "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off -- " + strings.Join(m.arguments, " ")
	return []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", "tcg", "-machine", "q35", "-cpu", "qemu64", "-smp", "1", "-m", "1024",
		"-kernel", m.kernel, "-initrd", m.initramfs, "-append", kernelLine,
		"-serial", "file:" + m.console, "-serial", "stdio",
		"-device", "isa-debug-exit,iobase=0xf4,iosize=1",
	}
}

// lastWords is the end of the console's output.
func (m machine) lastWords() string {
	const enough = 4000
	text, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
