/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hop limits (RFC 791, section 3.1, "time to live"; RFC 8200, section 3).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "checksum.h"
#include "packet.h"
#include "stats.h"

/* No other limit than the packet's own. */
#define HOPS_ANY 255

/* How many hops the packet may make, 0 if it doesn't say. */
static __always_inline __u32 hops_left(struct xdp_md *ctx, const struct packet *p)
{
	struct ipv6hdr *ip = packet_at(ctx, p, 0);

	if ((void *)ip + sizeof(struct iphdr) > (void *)(long)ctx->data_end)
		return 0;
	return p->ipv4 ? ((struct iphdr *)ip)->ttl : ip->hop_limit;
}

/* Makes the hop limit of the packet at `start` one less, and at most `most`. Returns COUNTER_COUNT, or the
 * exit if it may make no further hop. */
static __always_inline enum counter spend_hop(struct xdp_md *ctx, const struct packet *p,
					      void *start, __u8 most)
{
	void *end = (void *)(long)ctx->data_end;

	if (p->ipv4) {
		struct iphdr *ip = start;
		__u16 *hops = (__u16 *)&ip->ttl, before; /* and the protocol */

		if ((void *)(ip + 1) > end)
			return COUNTER_DROP_STATE;
		if (ip->ttl <= 1)
			return COUNTER_DROP_TTL;
		before = *hops;
		ip->ttl = ip->ttl - 1 < most ? ip->ttl - 1 : most;
		ip->check = adjust_checksum(ip->check, change_word(before, *hops));
	} else {
		struct ipv6hdr *ip = start;

		if ((void *)(ip + 1) > end)
			return COUNTER_DROP_STATE;
		if (ip->hop_limit <= 1)
			return COUNTER_DROP_TTL;
		ip->hop_limit = ip->hop_limit - 1 < most ? ip->hop_limit - 1 : most;
	}
	return COUNTER_COUNT;
}
