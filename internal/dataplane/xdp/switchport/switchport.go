// SPDX-License-Identifier: Apache-2.0

// Package switchport makes a veth end receive what the XDP program on its
// other end transmits.
//
// It is used by internal/netlab on the ports of a lab's switch that lead to
// balancers: hardware ports do this by themselves.
package switchport

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// xdpPass is XDP_PASS of linux/bpf.h.
const xdpPass = 2

// Attach puts a program that passes every frame on an interface of the current
// network namespace, in native mode; it lives as long as the interface.
//
// Without one, veth_xdp_flush (drivers/net/veth.c, seen in 6.18) leaves frames
// of XDP_TX in the receiver's ring without waking it. Generic receive offload
// makes the ring, but wakes nobody: the frames then wait for the next packet
// that takes the ordinary way.
func Attach(ifindex int) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "switchport",
		Type:         ebpf.XDP,
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("xdp program: %w", err)
	}
	defer program.Close()
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	return netlink.LinkSetXdpFdWithFlags(link, program.FD(), unix.XDP_FLAGS_DRV_MODE)
}
