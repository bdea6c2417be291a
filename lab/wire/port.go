// SPDX-License-Identifier: Apache-2.0

// Package wire processes frames on the wires of a laboratory, in BPF programs
// (lab/bpf). Its callers are lab/netlab and lab/bench.
//
// Interfaces get features that the machine's kernel or a veth lacks: VLAN access ports,
// the receiving end of Geneve tunnels, and switch ports that take frames from XDP. The
// packets of many flows are made as fast as one processor can: a Sender puts them on a
// wire, a Front feeds them to one program without a network, a Sink counts and drops them,
// and the bouncer sends them back.
//
// Every Attach function acts in the calling thread's network namespace, and the
// attached program lives as long as the interface.
package wire

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -target bpfel wire ../bpf/wire.bpf.c

// Verdicts of linux/bpf.h.
const (
	xdpPass = 2
	xdpTX   = 3
)

// AttachSwitch makes a veth end receive frames that the XDP program on its other
// end transmits, as hardware does, by a program of its own that passes every frame.
//
// Without one, veth_xdp_flush (drivers/net/veth.c, seen in 6.18) leaves frames
// of XDP_TX in the receiver's ring without waking it. Generic receive offload
// creates the ring but doesn't wake it either: the frames wait for the next packet
// that takes the ordinary way.
func AttachSwitch(ifindex int) error {
	program, err := loadConstant("switchport", xdpPass)
	return attachOnly(ifindex, "switch port", program, err)
}

// attachOnly attaches a program that the interface alone holds, unless it couldn't be loaded.
func attachOnly(ifindex int, name string, program *ebpf.Program, err error) error {
	if err == nil {
		defer program.Close()
		err = attachXDP(ifindex, program)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// loadConstant loads a program that only returns a verdict.
func loadConstant(name string, verdict int32) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         name,
		Type:         ebpf.XDP,
		AttachType:   ebpf.AttachXDP, // required for the front's tail call
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
}

// attachXDP attaches a program in native mode, in place of any other one.
func attachXDP(ifindex int, program *ebpf.Program) error {
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetXdpFdWithFlags(link, program.FD(), unix.XDP_FLAGS_DRV_MODE); err != nil {
		return fmt.Errorf("interface %s: xdp: %w", link.Attrs().Name, err)
	}
	return nil
}

// maxVLAN is the largest VLAN ID.
const maxVLAN = 4094

// AttachVLAN makes the interface an access port of VLAN id (1 to 4094), for
// kernels without VLAN devices: outgoing frames get the tag, incoming frames lose
// it, and all others are dropped.
func AttachVLAN(ifindex int, id uint16) error {
	if id == 0 || id > maxVLAN {
		return fmt.Errorf("vlan id %d: want 1 to %d", id, maxVLAN)
	}
	spec, err := loadWire()
	if err != nil {
		return err
	}
	if err := spec.Variables[wireVarVlanId].Set(id); err != nil {
		return err
	}
	var programs struct {
		Untag *ebpf.Program `ebpf:"untag"`
		Tag   *ebpf.Program `ebpf:"tag"`
	}
	if err := spec.LoadAndAssign(&programs, nil); err != nil {
		return fmt.Errorf("vlan port: %w", err)
	}
	defer programs.Untag.Close() // the filters hold the programs
	defer programs.Tag.Close()

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

// maxGeneveID is the largest network identifier (VNI), 24 bits.
const maxGeneveID = 1<<24 - 1

// AttachGeneve makes the interface the receiving end of the Geneve segment id (1
// to 2^24-1, RFC 8926) at these addresses, two at most, for kernels without Geneve
// devices: the kernel receives the inner frames of the segment, which must be for
// the interface's MAC address; other frames pass unchanged. Answers bypass the
// tunnel.
func AttachGeneve(ifindex int, id uint32, ends []netip.Addr) error {
	program, err := loadGeneve(id, ends)
	return attachOnly(ifindex, "geneve port", program, err)
}

func loadGeneve(id uint32, ends []netip.Addr) (*ebpf.Program, error) {
	var mapped [2][16]byte
	switch {
	case id == 0 || id > maxGeneveID:
		return nil, fmt.Errorf("segment %d: want 1 to %d", id, maxGeneveID)
	case len(ends) == 0 || len(ends) > len(mapped):
		return nil, fmt.Errorf("segment %d: %d addresses: want 1 to %d", id, len(ends), len(mapped))
	}
	for i, end := range ends {
		mapped[i] = end.As16()
	}
	spec, err := loadWire()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[wireVarSegmentId].Set(id); err != nil {
		return nil, err
	}
	if err := spec.Variables[wireVarEnds].Set(mapped); err != nil {
		return nil, err
	}
	var programs struct {
		OpenSegment *ebpf.Program `ebpf:"open_segment"`
	}
	if err := spec.LoadAndAssign(&programs, nil); err != nil {
		return nil, err
	}
	return programs.OpenSegment, nil
}
