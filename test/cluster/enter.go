// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Enter begins a command line that runs a program on the machine, for shells that are
// elsewhere. The program sees the machine's network, and its files and processes where
// the machine has files of its own, /proc among them.
func (m *Machine) Enter() []string {
	args := []string{"nsenter", "--target", strconv.Itoa(m.pid()), "--net"}
	if m.spaces&unix.CLONE_NEWNS != 0 {
		args = append(args, "--mount", "--pid")
	}
	if m.spaces&unix.CLONE_NEWUTS != 0 {
		args = append(args, "--uts")
	}
	return append(args, "--")
}
