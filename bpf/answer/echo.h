/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Echo replies (RFC 792; RFC 4443, section 4). A VIP's address replies while a service of it has a
 * usable backend. The request is turned into the reply: addresses swapped, type changed, checksum
 * updated.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#include "answer/refuse.h"
#include "answer/reply.h"
#include "core/checksum.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/vip.h"
#include "parse/icmp.h"

/* Swapped addresses don't change the sum. */
static __always_inline void reverse_ipv4(struct iphdr *ip, const struct packet *p)
{
	__u16 *hops = (__u16 *)&ip->ttl; /* and the protocol */
	__u16 before = *hops;

	ip->ttl = REPLY_TTL;
	ip->check = adjust_checksum(ip->check, change_word(before, *hops));
	ip->saddr = unmap_ipv4(p->vip.address);
	ip->daddr = unmap_ipv4(p->source);
}

static __always_inline void reverse_ipv6(struct ipv6hdr *ip, const struct packet *p)
{
	ip->hop_limit = REPLY_TTL;
	__builtin_memcpy(&ip->saddr, p->vip.address, 16);
	__builtin_memcpy(&ip->daddr, p->source, 16);
}

static __always_inline void reply_icmp(struct icmp *icmp, const struct packet *p)
{
	__u16 *kind = (__u16 *)icmp; /* type and code */
	__u16 before = *kind;

	icmp->type = p->ipv4 ? ICMP_ECHO_REPLY : ICMP6_ECHO_REPLY;
	icmp->check = adjust_checksum(icmp->check, change_word(before, *kind));
}

/* Returns 0, or -1 if the frame is too short. */
static __always_inline int write_echo(struct xdp_md *ctx, const struct packet *p)
{
	struct icmp *icmp;
	void *end, *ip;

	ip = reverse_link(ctx, p, 0);
	end = (void *)(long)ctx->data_end;
	if (!ip || ip + sizeof(struct iphdr) > end)
		return -1;
	icmp = ip + (p->header & OFFSET_MASK);
	if (p->ipv4)
		reverse_ipv4(ip, p);
	else if (ip + sizeof(struct ipv6hdr) <= end)
		reverse_ipv6(ip, p);
	if (p->fragment == FRAGMENT_LATER)
		return 0;
	if ((void *)(icmp + 1) > end)
		return -1;
	reply_icmp(icmp, p);
	return 0;
}

/* Whether there are no options or extension headers, which can't be reversed (source routes). */
static __always_inline int is_plain(const struct packet *p)
{
	__u32 fragment = p->fragment ? sizeof(struct extension) : 0;

	return p->header == (p->ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr) + fragment);
}

/* Handles an echo request to any address. Returns the exit. */
__noinline enum counter answer_echo(struct xdp_md *ctx, const struct packet *p)
{
	__u32 *flags;

	if (!p)
		return COUNTER_DROP_INTERNAL_ERROR;
	flags = vip_address(p);
	if (!flags)
		return COUNTER_PASS_NOT_VIP;
	if (p->overlay || !is_plain(p) || !is_unicast(p->source))
		return COUNTER_PASS_NOT_TCP_UDP;
	if (!(*flags & ADDRESS_USABLE))
		return refuse_echo(ctx, p, *flags);
	if (!within_limit(RATE_ECHO, ANSWER_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMIT;
	return write_echo(ctx, p) ? COUNTER_DROP_INTERNAL_ERROR : COUNTER_ANSWER_ECHO;
}
