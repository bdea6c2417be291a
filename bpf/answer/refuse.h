/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Refusals of packets for services without a usable backend, and of unknown connections. TCP
 * clients get a reset, as from a host with a closed port, other clients an ICMP error.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>

#include "answer/error.h"
#include "answer/reply.h"
#include "core/limit.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"

/*
 * Makes the reset for the packet with header `tcp` (RFC 9293, section 3.10.7.1). Returns 0, or -1
 * for a reset or a malformed packet, which aren't answered.
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

/* Turns the frame into the reset, whose headers are never longer. */
static __always_inline int write_reset(struct xdp_md *ctx, const struct packet *p,
				       struct tcphdr *reset)
{
	__u32 size = p->ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *ip;

	if (trim(ctx, p, size + sizeof(*reset)))
		return -1;
	ip = reverse_link(ctx, p, 0);
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

/* Answers a TCP packet with a reset. Returns the exit. */
static __always_inline enum counter answer_reset(struct xdp_md *ctx, const struct packet *p)
{
	struct tcphdr *tcp = packet_at(ctx, p, p->header);
	struct tcphdr reset = {};

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return COUNTER_DROP_NO_BACKEND;
	/* The length of a fragmented packet isn't known. */
	if (p->fragment || make_reset(tcp, p, &reset))
		return COUNTER_DROP_NO_BACKEND;
	if (!within_limit(RATE_RESET, ANSWER_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMIT;
	return write_reset(ctx, p, &reset) ? COUNTER_DROP_HEADROOM : COUNTER_ANSWER_RESET;
}

/* Refuses a packet of an unknown connection, so that its client needn't wait for a timeout. */
static __always_inline enum counter refuse_packet(struct xdp_md *ctx, const struct packet *p)
{
	enum counter exit;

	if (!may_answer(ctx, p))
		return COUNTER_DROP_NO_SESSION;
	exit = answer_reset(ctx, p);
	return exit == COUNTER_DROP_NO_BACKEND ? COUNTER_DROP_NO_SESSION : exit;
}

/* Refuses a packet of a service with these VIEW_* flags and no usable backend. Returns the exit. */
__noinline enum counter refuse_flow(struct xdp_md *ctx, const struct packet *p, __u32 flags)
{
	if (!(flags & VIEW_EMPTY))
		return COUNTER_DROP_INTERNAL_ERROR;
	if (!p || !feature_reject || !(flags & VIEW_REJECT) || !may_answer(ctx, p))
		return COUNTER_DROP_NO_BACKEND;
	if (p->vip.protocol == IPPROTO_TCP)
		return answer_reset(ctx, p);
	return answer_unreachable(ctx, p, p->ipv4 ? ICMP_UNREACHABLE_PORT : ICMP6_UNREACHABLE_PORT);
}

/*
 * Refuses an echo request to an address with these ADDRESS_* flags and no usable backend. Returns
 * the exit.
 */
static __always_inline enum counter refuse_echo(struct xdp_md *ctx, const struct packet *p,
						__u32 flags)
{
	if (!feature_reject || !(flags & ADDRESS_REJECT) || !may_answer(ctx, p))
		return COUNTER_DROP_NO_BACKEND;
	return answer_unreachable(ctx, p,
				  p->ipv4 ? ICMP_UNREACHABLE_HOST : ICMP6_UNREACHABLE_ADDRESS);
}
