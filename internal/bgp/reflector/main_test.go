// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// inside tells the test binary that it is in a network namespace of its own.
const inside = "FAIRLEAD_TEST_NAMESPACE"

// TestMain runs the tests in a network namespace of their own, if it may: so they
// have port 179, can run side by side, and leave nothing.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(inside) != "" {
		if lo, err := netlink.LinkByName("lo"); err == nil {
			err = netlink.LinkSetUp(lo)
			exitIf(err)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the thread whose death ends the child
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	exitIf(err)
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
