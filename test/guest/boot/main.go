// SPDX-License-Identifier: Apache-2.0

// Command boot is the first process of a guest machine of test/guest. It mounts the
// kernel's file systems, loads the modules in /modules, runs the test binaries that
// /plan lists with their output on a port to the host, and switches the machine off.
//
// A line that begins with the separator is boot's own: "run PACKAGE" before the output
// of a test binary, "end STATUS" after it, and "off" at the end.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// separator begins the lines that no test prints.
const separator = "\x1c"

// portName is the name of the port in the machine's description.
const portName = "output"

func main() {
	// Errors go to the console: the kernel opens it for the first process.
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Fprintln(os.Stderr, "guest: power off:", err)
}

func run() error {
	if err := errors.Join(mount(), loadModules("/modules"), startLoopback()); err != nil {
		return err
	}
	port, err := openPort(portName)
	if err != nil {
		return err
	}
	defer port.Close()
	plan, err := os.Open("/plan")
	if err != nil {
		return err
	}
	defer plan.Close()
	for lines := bufio.NewScanner(plan); lines.Scan(); {
		if err := runTests(port, strings.Fields(lines.Text())); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(port, "%soff\n", separator)
	return err
}

// mount mounts the file systems that programs expect.
func mount() error {
	for _, m := range []struct{ kind, path string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/run"},
		{"bpf", "/sys/fs/bpf"},
	} {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.path, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	return os.MkdirAll(os.TempDir(), 0o777)
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

func startLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// openPort opens the virtio-serial port of a name. Its device appears some time after
// the driver is loaded.
func openPort(name string) (*os.File, error) {
	const patience = 30 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, path := range names {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if strings.TrimSpace(string(text)) == name {
				return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), os.O_WRONLY, 0)
			}
		}
	}
	return nil, fmt.Errorf("no port %q", name)
}

// runTests runs a line of the plan: a package, then its test binary with arguments.
func runTests(port *os.File, line []string) error {
	if _, err := fmt.Fprintf(port, "%srun %s\n", separator, line[0]); err != nil {
		return err
	}
	cmd := exec.Command(line[1], line[2:]...)
	cmd.Dir = filepath.Dir(line[1]) // as go test does
	cmd.Stdout, cmd.Stderr = port, port
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "FAIRLEAD_BIN=/usr/bin"}
	status := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		return err
	}
	// Processes that tests left running must not disturb the next ones. The first
	// process isn't killed itself.
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			break
		}
	}
	_, err := fmt.Fprintf(port, "\n%send %d\n", separator, status)
	return err
}
