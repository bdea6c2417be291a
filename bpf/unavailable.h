/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services that no backend can serve: clients are left waiting, or told at once (lb.Unavailable).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include "error.h"
#include "packet.h"
#include "reply.h"
#include "reset.h"
#include "stats.h"
#include "types.h"

/* Returns the exit: an answer, or why there is none. */
static __always_inline enum counter answer_unreachable(struct xdp_md *ctx, const struct packet *p,
						       __u8 code)
{
	struct icmp_error error = {
		.type = p->ipv4 ? ICMP_UNREACHABLE : ICMP6_UNREACHABLE,
		.code = code,
	};

	if (!within_limit(ANSWER_UNREACHABLE, ANSWER_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMITED;
	return answer_error(ctx, p, &error) ? COUNTER_DROP_HEADROOM : COUNTER_ANSWER_UNREACHABLE;
}

/* A packet of a service with these VIEW_* flags that has no usable backend. */
__noinline enum counter refuse_flow(struct xdp_md *ctx, const struct packet *p, __u32 flags)
{
	if (!(flags & VIEW_EMPTY))
		return COUNTER_DROP_STATE;
	if (!p || !feature_reject || !(flags & VIEW_REJECT) || !may_answer(ctx, p))
		return COUNTER_DROP_NO_BACKEND;
	if (p->vip.protocol == IPPROTO_TCP)
		return answer_reset(ctx, p);
	return answer_unreachable(ctx, p, p->ipv4 ? ICMP_UNREACHABLE_PORT : ICMP6_UNREACHABLE_PORT);
}

/* An echo request to an address with these ADDRESS_* flags, none of whose services has one. */
static __always_inline enum counter refuse_echo(struct xdp_md *ctx, const struct packet *p,
						__u32 flags)
{
	if (!feature_reject || !(flags & ADDRESS_REJECT) || !may_answer(ctx, p))
		return COUNTER_DROP_NO_BACKEND;
	return answer_unreachable(ctx, p,
				  p->ipv4 ? ICMP_UNREACHABLE_HOST : ICMP6_UNREACHABLE_ADDRESS);
}
