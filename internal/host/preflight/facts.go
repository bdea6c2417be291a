// SPDX-License-Identifier: Apache-2.0

package preflight

import "net/netip"

// Facts are properties read from the system.
type Facts struct {
	// Kernel is its release, for example "6.1.0-18-amd64".
	Kernel string
	// ProgramErr is why the program of the XDP data plane doesn't work; nil if it does. Collect
	// leaves it to the caller.
	ProgramErr error
	// Modules of IPVS, by name.
	Modules Modules
	// BTF says that the kernel describes its own types.
	BTF bool
	// JIT is the text of net.core.bpf_jit_enable, "" if it can't be read.
	JIT string
	// Capabilities are the effective ones of this process, a bit each.
	Capabilities uint64
	// SysctlErr is why net.ipv4.ip_forward can't be written; nil if it can.
	SysctlErr error
	// MD5Err is why a socket can't have a password (TCP_MD5SIG); nil if it can.
	MD5Err error
	// NotForwarding has the settings of families that the kernel doesn't forward.
	NotForwarding []string
	BPFFS         BPFFS
	// Interfaces are in the order in which they were asked for.
	Interfaces []Interface
}

// BPFFS describes the file system that keeps maps and links beyond the end of a
// process.
type BPFFS struct {
	// Dir is the directory in which the agent pins.
	Dir string
	// Mounted says that Dir is, or would be, within a mounted BPF file system.
	Mounted bool
	// Known says that the kernel knows the file system, so that it can be
	// mounted.
	Known bool
}

// Interface describes one network interface.
type Interface struct {
	Name string
	// Exists is false if there is no such interface; then the rest is zero.
	Exists bool
	Up     bool
	// Driver is ethtool's name of it, "" if the interface has none.
	Driver string
	MTU    int
	// XDPFeatures are the kernel's NETDEV_XDP_ACT_* bits; nil if the kernel
	// doesn't report them.
	XDPFeatures *uint64
	// Program is the XDP program that is attached; nil if there is none.
	Program *Program
	// HidesVLAN says that the interface takes VLAN tags out of received frames
	// (ethtool's rx-vlan-offload).
	HidesVLAN bool
	// Networks have the interface's addresses.
	Networks []netip.Prefix
	// ReversePath is how IPv4 packets are filtered by their source, the larger of
	// net.ipv4.conf.all.rp_filter and the interface's own.
	ReversePath ReversePath
}

// ReversePath is a value of rp_filter (RFC 3704).
type ReversePath int

// The values. Strict drops packets whose source is reached through another
// interface, Loose those whose source is not reached at all.
const (
	Off ReversePath = iota
	Strict
	Loose
)

// Program is an XDP program that is attached to an interface.
type Program struct {
	ID uint32
	// Native says that it runs in the driver.
	Native bool
	// Holders are the processes that hold the program or its link open, for
	// example "other (pid 812)"; none if it is only pinned.
	Holders []string
	// Own says that one of them is Fairlead.
	Own bool
}
