// SPDX-License-Identifier: Apache-2.0

// Package reflector sends frames back where they came from, with as little work
// as possible: the limit with which measurements compare.
//
// It is used by internal/bench. Its program is bpf/reflector.bpf.c.
package reflector

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" reflector ../../../../bpf/reflector.bpf.c

// Load returns the program. The caller closes it.
func Load() (*ebpf.Program, error) {
	var programs reflectorPrograms
	if err := loadReflectorObjects(&programs, nil); err != nil {
		return nil, fmt.Errorf("reflector: %w", err)
	}
	return programs.Reflect, nil
}

// Attach makes the interface of this index, in the calling thread's network
// namespace, reflect everything as long as it lives.
func Attach(ifindex int) error {
	program, err := Load()
	if err != nil {
		return err
	}
	defer program.Close()
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("reflector: %w", err)
	}
	if err := netlink.LinkSetXdpFdWithFlags(link, program.FD(), unix.XDP_FLAGS_DRV_MODE); err != nil {
		return fmt.Errorf("reflector: interface %s: %w", link.Attrs().Name, err)
	}
	return nil
}
