/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about a client's packet, in answer to it: what it says on the outside, and the packet
 * itself, as far as it fits.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "icmp.h"
#include "reply.h"
#include "stats.h"

#define ICMP_ERROR_LENGTH 576 /* the longest answer (RFC 1812, section 4.3.2.3) */
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
	ip = turn_link(ctx, p, extra);
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
	ip = turn_link(ctx, p, extra);
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

/* Makes the frame the answer. Returns 0, or -1 if there is no room. */
__noinline int answer_error(struct xdp_md *ctx, const struct packet *p,
			    const struct icmp_error *error)
{
	if (!p || !error)
		return -1;
	return p->ipv4 ? answer_ipv4_error(ctx, p, error) : answer_ipv6_error(ctx, p, error);
}
