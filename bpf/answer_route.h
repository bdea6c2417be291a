/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way of answers to packets of services with DNAT. Such a packet may have come through another node,
 * whose kernel would have to forward the answer, and knows nothing of the connection: a filter that drops
 * what is invalid swallows it. So answers take the way that those of backends do, which this node's routes
 * say. They leave by the interface by which the packet came: where routes lead elsewhere, or nowhere, the
 * way back is what remains.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#include "nat_route.h"
#include "packet.h"

/*
 * Writes the link-layer addresses of an untagged frame, which is an answer on its way back, for a better
 * way. Returns 0, or -1 if there is none.
 */
__noinline int route_answer(struct xdp_md *ctx, const struct packet *p)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct bpf_fib_lookup fib = {};

	if (!p || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return -1;
	if (find_route(ctx, &p->vip, p->source, p->source_port, ctx->ingress_ifindex, &fib) !=
	    BPF_FIB_LKUP_RET_SUCCESS)
		return -1;
	if (fib.ifindex != ctx->ingress_ifindex)
		return -1;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return 0;
}
