/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ping of a VIP (RFC 792, RFC 4443 section 4). The address answers as long as something is served at
 * it. The request becomes its own reply: addresses swapped, another type, the checksum adjusted.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#include "checksum.h"
#include "icmp.h"
#include "packet.h"
#include "reply.h"
#include "stats.h"
#include "unavailable.h"
#include "vip_address.h"

/* The address words that change places add up to the same. */
static __always_inline void turn_ipv4(struct iphdr *ip, const struct packet *p)
{
	__u16 *hops = (__u16 *)&ip->ttl; /* and the protocol */
	__u16 before = *hops;

	ip->ttl = REPLY_TTL;
	ip->check = adjust_checksum(ip->check, change_word(before, *hops));
	ip->saddr = unmap_ipv4(p->vip.address);
	ip->daddr = unmap_ipv4(p->source);
}

static __always_inline void turn_ipv6(struct ipv6hdr *ip, const struct packet *p)
{
	ip->hop_limit = REPLY_TTL;
	__builtin_memcpy(&ip->saddr, p->vip.address, 16);
	__builtin_memcpy(&ip->daddr, p->source, 16);
}

static __always_inline void turn_icmp(struct icmp *icmp, const struct packet *p)
{
	__u16 *kind = (__u16 *)icmp; /* type and code */
	__u16 before = *kind;

	icmp->type = p->ipv4 ? ICMP_ECHO_REPLY : ICMP6_ECHO_REPLY;
	icmp->check = adjust_checksum(icmp->check, change_word(before, *kind));
}

/* Returns 0, or -1 if the packet isn't what was parsed. */
static __always_inline int write_echo(struct xdp_md *ctx, const struct packet *p)
{
	struct icmp *icmp;
	void *end, *ip;

	ip = turn_link(ctx, p, 0);
	end = (void *)(long)ctx->data_end;
	if (!ip || ip + sizeof(struct iphdr) > end)
		return -1;
	icmp = ip + (p->header & OFFSET_MASK);
	if (p->ipv4)
		turn_ipv4(ip, p);
	else if (ip + sizeof(struct ipv6hdr) <= end)
		turn_ipv6(ip, p);
	if (p->fragment == FRAGMENT_LATER)
		return 0;
	if ((void *)(icmp + 1) > end)
		return -1;
	turn_icmp(icmp, p);
	return 0;
}

/* Options and extension headers are not for turning round: a source route would be. */
static __always_inline int is_plain(const struct packet *p)
{
	__u32 fragment = p->fragment ? sizeof(struct extension) : 0;

	return p->header == (p->ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr) + fragment);
}

/* An echo request to any address. Returns the exit. */
__noinline enum counter answer_echo(struct xdp_md *ctx, const struct packet *p)
{
	__u32 *flags;

	if (!p)
		return COUNTER_DROP_STATE;
	flags = vip_address(p);
	if (!flags)
		return COUNTER_PASS_NOT_VIP;
	if (p->overlay || !is_plain(p) || !is_unicast(p))
		return COUNTER_PASS_NOT_TCP_UDP;
	if (!(*flags & ADDRESS_USABLE))
		return refuse_echo(ctx, p, *flags);
	return write_echo(ctx, p) ? COUNTER_DROP_STATE : COUNTER_ANSWER_ECHO;
}
