/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets from peers, where nodes are both balancers and servers of the same services (DSR modes).
 * The first balancer that receives a packet balances it. What a peer sends to this node is for the
 * local kernel, even if this node would pick another backend: the peer may have a record of the
 * flow. So a packet is forwarded at most once, and peers with different rings can't loop it.
 *
 * With L2 DSR, the source MAC address identifies the peer. A tunnel ends here if it comes from a
 * peer, to this node's tunnel endpoint, in the mode of a shared service, and the inner packet is for
 * such a service. Other hosts can't use it to bypass the network's filters.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "parse/decap.h"

static __always_inline int is_peer(const struct peer_key *key, enum peer role)
{
	__u8 *found = bpf_map_lookup_elem(&peers, key);

	return found && *found == role;
}

/* Whether the frame is from a peer of services with that enum forward, L2 DSR or DSR. */
static __noinline int is_from_peer(struct xdp_md *ctx, __u32 forward)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct peer_key key = { .forward = forward };

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(key.address, eth->h_source, ETH_ALEN);
	return is_peer(&key, PEER_BALANCER);
}

/* Whether a packet with this result of parsing may be a tunnel's. */
static __always_inline int may_be_peer_tunnel(enum counter exit, const struct packet *p)
{
	if (p->tagged)
		return 0;
	return exit == COUNTER_PASS_NOT_TCP_UDP ||
	       (exit == CONTINUE && p->vip.port == bpf_htons(GUE_PORT) &&
		p->vip.protocol == IPPROTO_UDP);
}

/* Parses a packet's tunnel. Returns whether it is one from a peer to this node. */
static __always_inline int read_peer_tunnel(struct xdp_md *ctx, struct tunnel *t)
{
	struct peer_key key = {};

	if (read_tunnel((void *)(long)ctx->data, (void *)(long)ctx->data_end, t) != TUNNEL_VALID)
		return 0;
	key.forward = t->forward;
	__builtin_memcpy(key.address, t->destination.bytes, sizeof(key.address));
	if (!is_peer(&key, PEER_LOCAL))
		return 0;
	__builtin_memcpy(key.address, t->source.bytes, sizeof(key.address));
	if (!is_peer(&key, PEER_BALANCER))
		return 0;
	/* Packets with this node's own address as source are forged. */
	__builtin_memcpy(key.address, t->sender.bytes, sizeof(key.address));
	return is_unicast(t->sender.bytes) && !is_peer(&key, PEER_LOCAL);
}
