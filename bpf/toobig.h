/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Path MTU discovery (RFC 1191, RFC 8201). A packet that doesn't fit towards its backend, tunnel header
 * included, can't be fragmented here; its sender is told what would fit. That holds for IPv4 packets
 * without "don't fragment" too: a sender that learns the MTU fragments by itself, and the alternative
 * is a hole in which every large packet vanishes.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>

#include "encap.h"
#include "error.h"
#include "packet.h"
#include "reply.h"
#include "stats.h"
#include "types.h"

#define IPV4_MIN_MTU 68 /* RFC 791, section 3.2 */
#define IPV6_MIN_MTU 1280 /* RFC 8200, section 5: nobody sends less than that in pieces */

/* For a packet that is longer than `mtu`. Returns the exit: an answer, or why there is none. */
__noinline enum counter answer_mtu(struct xdp_md *ctx, const struct packet *p, __u32 mtu)
{
	struct icmp_error error = {};
	__u32 least;

	if (!p)
		return COUNTER_DROP_STATE;
	least = p->ipv4 ? IPV4_MIN_MTU : IPV6_MIN_MTU;
	if (mtu < least)
		mtu = least;
	if (p->length <= mtu || !may_answer(ctx, p))
		return COUNTER_DROP_TOO_BIG;
	if (!within_limit(ANSWER_TOO_BIG, ANSWER_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMITED;
	error.type = p->ipv4 ? ICMP_UNREACHABLE : ICMP6_TOO_BIG;
	error.code = p->ipv4 ? ICMP_UNREACHABLE_FRAGMENTATION : 0;
	error.rest = bpf_htonl(mtu); /* IPv4: the lower half */
	return answer_error(ctx, p, &error) ? COUNTER_DROP_HEADROOM : COUNTER_ANSWER_TOO_BIG;
}

/* For a packet that doesn't fit towards the backend. */
static __always_inline enum counter answer_too_big(struct xdp_md *ctx, const struct packet *p,
						   const struct backend *b)
{
	__u32 extra = overhead(b);

	return answer_mtu(ctx, p, b->mtu > extra ? b->mtu - extra : 0);
}
