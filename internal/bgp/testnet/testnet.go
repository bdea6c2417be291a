// SPDX-License-Identifier: Apache-2.0

// Package testnet gives the tests of a package a network of their own: so they
// have port 179, can run beside others, and leave nothing.
//
// It is for tests only, and has no place in the story of DESIGN.md §1.
package testnet

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

// Main is TestMain: it runs the tests in a network namespace of their own, if it
// may, whose loopback interface is up.
func Main(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(inside) != "" {
		exitIf(raiseLoopback())
		os.Exit(m.Run())
	}
	exitIf(again())
}

// raiseLoopback has the new namespace's only interface work.
func raiseLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// again runs the test binary once more, in a new namespace.
func again() error {
	runtime.LockOSThread() // the thread whose death ends the child
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	return err
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
