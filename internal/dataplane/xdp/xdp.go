// SPDX-License-Identifier: Apache-2.0

// Package xdp is the data plane that balances packets in the kernel, before the
// network stack sees them (DESIGN.md §5).
//
// It loads bpf/balancer.bpf.c, attaches it to the node's interfaces and keeps
// the tables that the program reads: for each service a Maglev ring and its
// backends, ready to be written into packets. Reconcile drives it through the
// dataplane.DataPlane interface. Everything that the kernel needs is pinned
// under one directory, so packets are balanced also while no agent runs, and
// the next agent adopts what it finds.
//
// Only this folder and those below it import an eBPF library.
package xdp

import (
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/maglev"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -Wall -Wextra -Werror" -type view -type view_flag -type backend_flag -type member -type address_flag -type answer -type vip_number -type vip_key -type segment_type -type forward -type phase -type traffic -type new_flows_chunk -type trace -type trace_step -type xdp_md -type limit -type limit_time -type round -type round_limit -type quic -type nat_state -type nat_flag -type nat_seconds -type nat_refusal balancer ../../../bpf/balancer.bpf.c

// maxServices is the number of services at once.
const maxServices = 8192

// maxTunnelEnds is the number of tunnel end points of a node.
const maxTunnelEnds = 64

// Limits are the services that this data plane can serve.
func Limits() dataplane.Limits {
	return dataplane.Limits{
		Forwards:    []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve, lb.NAT, lb.DNAT},
		Segments:    []lb.SegmentType{lb.SegmentVLAN, lb.SegmentVXLAN, lb.SegmentGeneve},
		MaxServices: maxServices,
		MaxBackends: maxServiceBackends,
	}
}

// maxServiceBackends is bounded by the 15 bits of a ring entry.
const maxServiceBackends = maglev.MaxBackends
