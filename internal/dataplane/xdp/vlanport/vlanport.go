// SPDX-License-Identifier: Apache-2.0

// Package vlanport makes an interface an access port of a VLAN on kernels
// without VLAN devices: frames that leave get the tag, frames that arrive with
// it lose it, all others are dropped.
//
// Labs use it for routers and servers that live in a tenant's VLAN. Its program
// is bpf/vlanport.bpf.c.
package vlanport

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" vlanport ../../../../bpf/vlanport.bpf.c

// Attach makes the interface of this index, in the calling thread's network
// namespace, an access port of VLAN id (1 to 4094). The port lives as long as
// the interface.
func Attach(ifindex int, id uint16) error {
	if id == 0 || id > 4094 {
		return fmt.Errorf("vlan id %d: want 1 to 4094", id)
	}
	spec, err := loadVlanport()
	if err != nil {
		return err
	}
	if err := spec.Variables[vlanportVarVlanId].Set(id); err != nil {
		return err
	}
	var programs vlanportPrograms
	if err := spec.LoadAndAssign(&programs, nil); err != nil {
		return fmt.Errorf("vlan port: %w", err)
	}
	defer programs.Close() // the filters hold the programs

	clsact := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscReplace(clsact); err != nil {
		return fmt.Errorf("vlan port: clsact: %w", err)
	}
	for _, f := range []struct {
		name   string
		parent uint32
		fd     int
	}{
		{"untag", netlink.HANDLE_MIN_INGRESS, programs.Untag.FD()},
		{"tag", netlink.HANDLE_MIN_EGRESS, programs.Tag.FD()},
	} {
		filter := &netlink.BpfFilter{
			FilterAttrs:  netlink.FilterAttrs{LinkIndex: ifindex, Parent: f.parent, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
			Fd:           f.fd,
			Name:         f.name,
			DirectAction: true,
		}
		if err := netlink.FilterReplace(filter); err != nil {
			return fmt.Errorf("vlan port: %s: %w", f.name, err)
		}
	}
	return nil
}
