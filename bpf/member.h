/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Nodes that are balancers and servers at once, of services whose servers answer clients directly. A
 * packet is balanced once, by the first balancer that sees it: what another one sends here is for this
 * node's kernel, whatever this node would have picked, as the other one's records may know better. So
 * a packet is sent on once at most, and balancers that disagree can't pass it to and fro.
 *
 * By L2 DSR it comes as the client sent it, and the sender's MAC address tells. A tunnel ends here if
 * it comes from such a balancer to the address by which it knows this node, in the mode of a service
 * that both share, and leads to the address of one: a stranger can't slip packets past the network's
 * filters.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "decap.h"
#include "maps.h"
#include "packet.h"
#include "stats.h"
#include "types.h"

static __always_inline int is_member(const struct member_key *key, enum member what)
{
	__u8 *is = bpf_map_lookup_elem(&members, key);

	return is && *is == what;
}

/* Whether the station that sent the frame is a balancer that shares services by L2 DSR. */
static __noinline int is_balanced(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct member_key key = { .forward = FORWARD_L2DSR };

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(key.address, eth->h_source, ETH_ALEN);
	return is_member(&key, MEMBER_BALANCER);
}

/* From what parsing said: whether it is worth a closer look. */
static __always_inline int may_be_tunnel(enum counter exit, const struct packet *p)
{
	if (p->tagged)
		return 0;
	return exit == COUNTER_PASS_NOT_TCP_UDP ||
	       (exit == COUNTER_COUNT && p->vip.port == bpf_htons(GUE_PORT) &&
		p->vip.protocol == IPPROTO_UDP);
}

/* Whether the tunnel's packet leads to an address of which tunnels end here. */
static __always_inline int is_tunnelled(const struct tunnel *t)
{
	struct address_key key = {};
	__u32 *flags;

	__builtin_memcpy(key.address, t->inner.bytes, sizeof(key.address));
	flags = bpf_map_lookup_elem(&addresses, &key);
	return flags && *flags & ADDRESS_TUNNELLED;
}

/* Takes the outer headers off a packet that another balancer sent here. Returns 0 if it is none. */
static __noinline int end_tunnel(struct xdp_md *ctx)
{
	struct tunnel t = {};
	struct member_key key = {};

	if (read_tunnel((void *)(long)ctx->data, (void *)(long)ctx->data_end, &t) != TUNNEL_SOUND)
		return 0;
	key.forward = t.forward;
	__builtin_memcpy(key.address, t.destination.bytes, sizeof(key.address));
	if (!is_member(&key, MEMBER_SELF))
		return 0;
	__builtin_memcpy(key.address, t.source.bytes, sizeof(key.address));
	if (!is_member(&key, MEMBER_BALANCER))
		return 0;
	return is_tunnelled(&t) && !decap(ctx, &t);
}
