//go:build guest

// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// exitPort is the machine's debug port: a byte that is written there ends it.
const exitPort = 0xf4

// TestMain: the tests are the first process of a guest machine (test/guest). It mounts the
// kernel's file systems, loads the modules in /modules, runs the tests with the second
// serial port as output, reports the exit status to the machine and so ends it. The kernel
// panics when its first process ends, and shows the error above. Where another program is
// the first process, it only runs the tests.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	err := errors.Join(mount(), loadModules("/modules"), os.MkdirAll(os.TempDir(), 0o777), openOutput("/dev/ttyS1"))
	if err == nil {
		err = report(m.Run())
	}
	fmt.Fprintln(os.Stderr, "guest:", err)
	os.Exit(1)
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

// openOutput makes a serial port standard output and error. It carries bytes as they are:
// no carriage return in front of every line feed.
func openOutput(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	settings, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	settings.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, settings); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(unix.Dup2(int(f.Fd()), unix.Stdout), unix.Dup2(int(f.Fd()), unix.Stderr))
}

// report passes the exit status to the machine. It returns only if that fails.
func report(status int) error {
	const drain = 1
	if err := unix.IoctlSetInt(unix.Stdout, unix.TCSBRK, drain); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	ports, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := ports.WriteAt([]byte{byte(status)}, exitPort); err != nil {
		return err
	}
	return errors.New("the machine still runs after its end")
}
