/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A TCP reset in answer to a segment, as a host sends it on whose port nobody listens.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>

#include "packet.h"
#include "reply.h"
#include "stats.h"

/*
 * The reset that answers the segment at `tcp` (RFC 9293, section 3.10.7.1). Returns 0, or -1 for a
 * segment that isn't answered: a reset, or one that is damaged.
 */
static __always_inline int make_reset(const struct tcphdr *tcp, const struct packet *p,
				      struct tcphdr *reset)
{
	__u32 header = p->header + tcp->doff * 4;

	if (tcp->rst || tcp->doff < sizeof(*tcp) / 4 || p->length < header)
		return -1;
	reset->source = tcp->dest;
	reset->dest = tcp->source;
	reset->doff = sizeof(*reset) / 4;
	reset->rst = 1;
	if (tcp->ack) {
		reset->seq = tcp->ack_seq;
		return 0;
	}
	reset->ack = 1;
	reset->ack_seq = bpf_htonl(bpf_ntohl(tcp->seq) + p->length - header + tcp->syn + tcp->fin);
	return 0;
}

/* Makes the frame the reset; headers are never longer than those that it had. */
static __always_inline int write_reset(struct xdp_md *ctx, const struct packet *p,
				       struct tcphdr *reset)
{
	__u32 size = p->ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *ip;

	if (trim(ctx, p, size + sizeof(*reset)))
		return -1;
	ip = turn_link(ctx, p, 0);
	if (!ip || ip + sizeof(struct iphdr) + sizeof(*reset) > (void *)(long)ctx->data_end)
		return -1;
	reset->check = ~fold_wide(pseudo_sum(p, IPPROTO_TCP, sizeof(*reset)) +
				  sum_words(reset, sizeof(*reset)));
	if (p->ipv4) {
		write_ipv4(ip, p, IPPROTO_TCP, 0, sizeof(struct iphdr) + sizeof(*reset));
		__builtin_memcpy(ip + sizeof(struct iphdr), reset, sizeof(*reset));
		return 0;
	}
	if (ip + sizeof(struct ipv6hdr) + sizeof(*reset) > (void *)(long)ctx->data_end)
		return -1;
	write_ipv6(ip, p, IPPROTO_TCP, sizeof(*reset));
	__builtin_memcpy(ip + sizeof(struct ipv6hdr), reset, sizeof(*reset));
	return 0;
}

/* Returns the exit: an answer, or why there is none. */
static __always_inline enum counter answer_reset(struct xdp_md *ctx, const struct packet *p)
{
	struct tcphdr *tcp = packet_at(ctx, p, p->header);
	struct tcphdr reset = {};

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return COUNTER_DROP_NO_BACKEND;
	/* A fragment doesn't say how long the segment is. */
	if (p->fragment || make_reset(tcp, p, &reset))
		return COUNTER_DROP_NO_BACKEND;
	if (!within_limit(ANSWER_RESET, ANSWER_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMITED;
	return write_reset(ctx, p, &reset) ? COUNTER_DROP_HEADROOM : COUNTER_ANSWER_RESET;
}

/* A segment of a connection that is unknown here, where it can't go on. Its client shouldn't wait. */
static __always_inline enum counter refuse_segment(struct xdp_md *ctx, const struct packet *p)
{
	enum counter exit;

	if (!may_answer(ctx, p))
		return COUNTER_DROP_NO_SESSION;
	exit = answer_reset(ctx, p);
	return exit == COUNTER_DROP_NO_BACKEND ? COUNTER_DROP_NO_SESSION : exit;
}
