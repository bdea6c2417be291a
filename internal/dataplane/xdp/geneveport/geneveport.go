// SPDX-License-Identifier: Apache-2.0

// Package geneveport makes an interface the receiving end of a Geneve segment
// (RFC 8926) on kernels without Geneve devices: of the segment's frames to the
// interface's addresses the kernel gets what is inside, all others pass as they
// are.
//
// Labs use it for servers to which balancers tunnel in Geneve; they answer past
// the tunnel. Its program is bpf/geneveport.bpf.c.
package geneveport

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" geneveport ../../../../bpf/geneveport.bpf.c

// maxID is the largest identifier of a segment, 24 bits.
const maxID = 1<<24 - 1

// Attach makes the interface of this index, in the calling thread's network
// namespace, an end of the segment id (1 to 2^24-1) at these addresses: two at
// most. The frames inside have to be for the interface's own MAC address. The end
// lives as long as the interface.
func Attach(ifindex int, id uint32, ends []netip.Addr) error {
	program, err := load(id, ends)
	if err != nil {
		return fmt.Errorf("geneve port: %w", err)
	}
	defer program.Close() // the interface holds it
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetXdpFdWithFlags(link, program.FD(), unix.XDP_FLAGS_DRV_MODE); err != nil {
		return fmt.Errorf("geneve port: %w", err)
	}
	return nil
}

// load loads the program of an end.
func load(id uint32, ends []netip.Addr) (*ebpf.Program, error) {
	var mapped [2][16]byte
	switch {
	case id == 0 || id > maxID:
		return nil, fmt.Errorf("segment %d: want 1 to %d", id, maxID)
	case len(ends) == 0 || len(ends) > len(mapped):
		return nil, fmt.Errorf("segment %d: %d addresses: want 1 to %d", id, len(ends), len(mapped))
	}
	for i, end := range ends {
		mapped[i] = end.As16()
	}
	spec, err := loadGeneveport()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[geneveportVarSegmentId].Set(id); err != nil {
		return nil, err
	}
	if err := spec.Variables[geneveportVarEnds].Set(mapped); err != nil {
		return nil, err
	}
	var programs geneveportPrograms
	if err := spec.LoadAndAssign(&programs, nil); err != nil {
		return nil, err
	}
	return programs.OpenSegment, nil
}
