// SPDX-License-Identifier: Apache-2.0

// Command init is the first process of a guest machine (see test/vm). It
// mounts the kernel's file systems, loads the modules in /modules, runs its
// arguments as a command whose output goes to the second serial port, reports
// the exit status to the machine and so ends it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// exitPort is the machine's debug port: a byte that is written there ends it.
const exitPort = 0xf4

func main() {
	status, err := run(os.Args[1:])
	if err == nil {
		err = report(status)
	}
	// The kernel panics when its first process ends, and shows this above.
	fmt.Fprintln(os.Stderr, "init:", err)
	os.Exit(1)
}

// run returns the command's exit status.
func run(args []string) (int, error) {
	if err := errors.Join(mount(), loadModules("/modules"), os.MkdirAll(os.TempDir(), 0o777)); err != nil {
		return 0, err
	}
	output, err := openOutput("/dev/ttyS1")
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = []string{"HOME=/", "PATH=/"}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	// A command that a signal has killed has no exit status, which is -1: 255.
	return cmd.ProcessState.ExitCode(), nil
}

// mount mounts what programs expect of a kernel.
func mount() error {
	for _, m := range []struct{ kind, path string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.path, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	return nil
}

// loadModules loads the files of a directory in the order of their names.
func loadModules(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// openOutput opens a serial port that carries bytes as they are: no carriage
// return in front of every line feed.
func openOutput(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	settings, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	settings.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// report tells the machine the exit status. It returns only if that fails.
func report(status int) error {
	ports, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := ports.WriteAt([]byte{byte(status)}, exitPort); err != nil {
		return err
	}
	return errors.New("the machine goes on after its end")
}
