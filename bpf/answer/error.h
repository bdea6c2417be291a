/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors that the balancer sends to clients. An error quotes as much of the packet as fits.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "answer/reply.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "core/vip.h"
#include "parse/icmp.h"
#include "send/encap.h"

#define ICMP_ERROR_LENGTH 576 /* maximum length (RFC 1812, section 4.3.2.3) */
#define ICMP6_ERROR_LENGTH 1280 /* the same (RFC 4443, section 2.4 (c)) */
#define TOS_INTERNETWORK_CONTROL 0xc0 /* RFC 1812, section 4.3.2.5 */

struct icmp_error {
	__u8 type;
	__u8 code;
	__be32 rest;
};

static __always_inline int answer_ipv4_error(struct xdp_md *ctx, const struct packet *p,
					     const struct icmp_error *error)
{
	const __u32 extra = sizeof(struct iphdr) + sizeof(struct icmp);
	__u32 quote = p->length;
	struct icmp *icmp;
	struct iphdr *ip;

	if (quote > ICMP_ERROR_LENGTH - extra)
		quote = ICMP_ERROR_LENGTH - extra;
	if (trim(ctx, p, quote) || bpf_xdp_adjust_head(ctx, -(int)extra))
		return -1;
	ip = reverse_link(ctx, p, extra);
	if (!ip || (void *)ip + extra > (void *)(long)ctx->data_end)
		return -1;
	write_ipv4(ip, p, IPPROTO_ICMP, TOS_INTERNETWORK_CONTROL, extra + quote);
	icmp = (void *)(ip + 1);
	icmp->type = error->type;
	icmp->code = error->code;
	icmp->check = 0;
	icmp->rest = error->rest;
	icmp->check = ~fold_wide(
		sum_bytes(ctx, (void *)icmp - (void *)(long)ctx->data, sizeof(*icmp) + quote));
	return 0;
}

static __always_inline int answer_ipv6_error(struct xdp_md *ctx, const struct packet *p,
					     const struct icmp_error *error)
{
	const __u32 extra = sizeof(struct ipv6hdr) + sizeof(struct icmp);
	__u32 quote = p->length;
	struct icmp *icmp;
	struct ipv6hdr *ip;
	__u64 sum;

	if (quote > ICMP6_ERROR_LENGTH - extra)
		quote = ICMP6_ERROR_LENGTH - extra;
	if (trim(ctx, p, quote) || bpf_xdp_adjust_head(ctx, -(int)extra))
		return -1;
	ip = reverse_link(ctx, p, extra);
	if (!ip || (void *)ip + extra > (void *)(long)ctx->data_end)
		return -1;
	write_ipv6(ip, p, IPPROTO_ICMPV6, sizeof(*icmp) + quote);
	icmp = (void *)(ip + 1);
	icmp->type = error->type;
	icmp->code = error->code;
	icmp->check = 0;
	icmp->rest = error->rest;
	sum = pseudo_sum(p, IPPROTO_ICMPV6, sizeof(*icmp) + quote);
	icmp->check = ~fold_wide(sum + sum_bytes(ctx, (void *)icmp - (void *)(long)ctx->data,
						 sizeof(*icmp) + quote));
	return 0;
}

/* Turns the frame into the error. Returns 0, or -1 if there is no room. */
__noinline int answer_error(struct xdp_md *ctx, const struct packet *p,
			    const struct icmp_error *error)
{
	if (!p || !error)
		return -1;
	return p->ipv4 ? answer_ipv4_error(ctx, p, error) : answer_ipv6_error(ctx, p, error);
}

/* Sends an ICMP unreachable. Returns the exit. */
static __always_inline enum counter answer_unreachable(struct xdp_md *ctx, const struct packet *p,
						       __u8 code)
{
	struct icmp_error error = {
		.type = p->ipv4 ? ICMP_UNREACHABLE : ICMP6_UNREACHABLE,
		.code = code,
	};

	if (!within_limit(RATE_UNREACHABLE, ANSWER_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMIT;
	return answer_error(ctx, p, &error) ? COUNTER_DROP_HEADROOM : COUNTER_ANSWER_UNREACHABLE;
}

/*
 * Path MTU discovery (RFC 1191, RFC 8201). The balancer doesn't fragment packets that are too big,
 * tunnel header included, but sends the MTU to the client, even for IPv4 packets without "don't
 * fragment": the client then fragments them itself, instead of losing every large packet.
 */
#define IPV4_MIN_MTU 68 /* RFC 791, section 3.2 */
#define IPV6_MIN_MTU 1280 /* RFC 8200, section 5: hosts don't reduce packets below it */

/*
 * Whether one more "too big" may be sent. Clients can't send large packets without it, so large
 * packets to one service leave the answers of others. Not inlined, as the callers' stack has no room
 * for it.
 */
__noinline int may_answer_too_big(const struct packet *p)
{
	__u64 now = bpf_ktime_get_coarse_ns() << LIMIT_TIME_SHIFT, *arrival;
	__u32 number;

	if (!p || tracing)
		return tracing;
	number = service_number(p);
	arrival = bpf_map_lookup_elem(&mtu_answers, &number);
	return arrival && limit_take(arrival, ANSWER_INTERVAL_NS << LIMIT_TIME_SHIFT, now) &&
	       within_limit(RATE_TOO_BIG, TOO_BIG_INTERVAL_NS);
}

/* Handles a packet that is longer than `mtu`. Returns the exit. */
__noinline enum counter answer_mtu(struct xdp_md *ctx, const struct packet *p, __u32 mtu)
{
	struct icmp_error error = {};
	__u32 least;

	if (!p)
		return COUNTER_DROP_INTERNAL_ERROR;
	least = p->ipv4 ? IPV4_MIN_MTU : IPV6_MIN_MTU;
	if (mtu < least)
		mtu = least;
	if (p->length <= mtu || !may_answer(ctx, p))
		return COUNTER_DROP_TOO_BIG;
	if (!may_answer_too_big(p))
		return COUNTER_DROP_ANSWER_LIMIT;
	error.type = p->ipv4 ? ICMP_UNREACHABLE : ICMP6_TOO_BIG;
	error.code = p->ipv4 ? ICMP_UNREACHABLE_FRAGMENTATION : 0;
	error.rest = bpf_htonl(mtu); /* IPv4: the lower half */
	return answer_error(ctx, p, &error) ? COUNTER_DROP_HEADROOM : COUNTER_ANSWER_TOO_BIG;
}
