//go:build guest

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/test/e2e/harness"
)

// confinedEnv has the test binary execute its arguments with the rights of a pod.
const confinedEnv = "FAIRLEAD_TEST_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confinedEnv) != "" {
		fmt.Fprintln(os.Stderr, confined(os.Args[1:]))
		os.Exit(1)
	}
	harness.Main(m)
}

// confined executes a program that has CAP_NET_ADMIN only, and /proc/sys read-only, as a container with these rights.
func confined(args []string) error {
	err := errors.Join(
		unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""), unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
	)
	for capability := range uintptr(unix.CAP_LAST_CAP + 1) {
		if capability != unix.CAP_NET_ADMIN {
			err = errors.Join(err, unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0))
		}
	}
	path, failed := exec.LookPath(args[0])
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return unix.Exec(path, args, os.Environ())
}
