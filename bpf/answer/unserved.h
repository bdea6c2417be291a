/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets to addresses that this node announces, but that no service takes: other ports and
 * protocols of a VIP, and unused addresses of an aggregate. The kernel would route them back to the
 * router that sent them, which sends them here again, until their TTL ends.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "core/vip.h"
#include "nat/path.h"

/* Whether an aggregate that this node announces has the packet's destination. */
static __always_inline int is_aggregated(const struct packet *p)
{
	struct prefix_key key = { .prefix_length = 8 * sizeof(key.address) };

	if (p->vip.segment_type != SEGMENT_NONE)
		return 0;
	__builtin_memcpy(key.address, p->vip.address, sizeof(key.address));
	return bpf_map_lookup_elem(&aggregates, &key) != NULL;
}

/*
 * Whether the kernel would route the packet. It doesn't if this node has the address, or isn't a
 * router. Whether it is one is a property of the ingress interface: for tagged packets it is the
 * VLAN device's in the kernel, which isn't known here. A tagged packet that the interface itself
 * wouldn't forward isn't dropped, as the look-up ends before it shows whether the node has the
 * address.
 */
static __always_inline int is_routed(struct xdp_md *ctx, const struct packet *p)
{
	struct bpf_fib_lookup fib = {
		.l4_protocol = p->vip.protocol,
		.sport = p->source_port,
		.dport = p->vip.port,
		.ifindex = ctx->ingress_ifindex,
	};

	switch (find_route(ctx, p->source, p->vip.address, &fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return 1;
	}
	return 0;
}

/*
 * The exit of a packet that no service takes: `exit`, with which it would be passed to the kernel,
 * or COUNTER_DROP_UNSERVED. The kernel doesn't route packets within segments.
 */
__noinline enum counter unserved(struct xdp_md *ctx, const struct packet *p, enum counter exit)
{
	if (!p || p->overlay || exit >= COUNTER_DROP_NO_BACKEND)
		return exit;
	if (!vip_address(p) && !is_aggregated(p))
		return exit;
	if (!is_routed(ctx, p))
		return exit;
	return exit == COUNTER_PASS_FRAGMENT ? COUNTER_DROP_FRAGMENT : COUNTER_DROP_UNSERVED;
}
