/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about translated packets (RFC 5508, section 4). The quoted packet's addresses and
 * ports are translated back. The error's source becomes the other side of the session, as the
 * receiver may have no route to the original one.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "core/address.h"
#include "core/checksum.h"
#include "core/packet.h"
#include "core/stats.h"
#include "nat/rewrite.h"
#include "parse/icmp.h"

/* The quoted header's checksum compensates for its addresses: their sum stays the same. */
static __always_inline int quote_ipv4(struct xdp_md *ctx, const struct packet *p,
				      const struct translation *to, __u64 *addresses)
{
	struct iphdr *ip = packet_at(ctx, p, p->header + sizeof(struct icmp));
	__be32 from = unmap_ipv4(to->destination), dest = unmap_ipv4(to->source);

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return -1;
	*addresses = (__u64)~ip->saddr + from + (__u32)~ip->daddr + dest;
	ip->check = adjust_checksum(ip->check, *addresses);
	ip->saddr = from;
	ip->daddr = dest;
	return 0;
}

static __always_inline int quote_ipv6(struct xdp_md *ctx, const struct packet *p,
				      const struct translation *to, __u64 *addresses)
{
	struct ipv6hdr *ip = packet_at(ctx, p, p->header + sizeof(struct icmp));

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return -1;
	*addresses = change_address(&ip->saddr, to->destination, 0) +
		     change_address(&ip->daddr, to->source, 0);
	__builtin_memcpy(&ip->saddr, to->destination, 16);
	__builtin_memcpy(&ip->daddr, to->source, 16);
	return 0;
}

/* Updates the quoted checksum, if it is quoted. Returns the change of the message's sum. */
static __always_inline __u64 quote_check(struct xdp_md *ctx, const struct packet *p, __u32 offset,
					 __u64 change)
{
	__u16 *check = packet_at(ctx, p, p->quote + offset), before;

	if ((void *)(check + 1) > (void *)(long)ctx->data_end ||
	    p->quote + offset + sizeof(*check) > p->length)
		return 0;
	before = *check;
	*check = p->vip.protocol == IPPROTO_UDP ? adjust_udp(before, change)
						: adjust_checksum(before, change);
	return change_word(before, *check);
}

/*
 * Translates ports and checksum of the quoted packet. Returns 0, or -1 if the frame is too short.
 */
static __always_inline int quote_transport(struct xdp_md *ctx, const struct packet *p,
					   const struct translation *to, __u64 addresses,
					   __u64 *change)
{
	__be16 *ports = packet_at(ctx, p, p->quote);
	__u32 at = p->vip.protocol == IPPROTO_TCP ? __builtin_offsetof(struct tcphdr, check)
						  : __builtin_offsetof(struct udphdr, check);
	__u64 changed;

	if ((void *)(ports + 2) > (void *)(long)ctx->data_end)
		return -1;
	changed = change_word(ports[0], to->port) + change_word(ports[1], to->source_port);
	ports[0] = to->port;
	ports[1] = to->source_port;
	*change += changed + quote_check(ctx, p, at, addresses + changed);
	return 0;
}

/* Translates the error's own headers. The checksum of ICMPv6 covers the addresses too. */
static __always_inline enum counter translate_message(struct xdp_md *ctx, const struct packet *p,
						      const struct translation *to, __u64 change)
{
	struct icmp *icmp = packet_at(ctx, p, p->header);
	void *ip = packet_at(ctx, p, 0), *end = (void *)(long)ctx->data_end;

	if ((void *)(icmp + 1) > end || ip + sizeof(struct iphdr) > end)
		return COUNTER_DROP_INTERNAL_ERROR;
	if (!p->ipv4) {
		struct ipv6hdr *ip6 = ip;

		if ((void *)(ip6 + 1) > end)
			return COUNTER_DROP_INTERNAL_ERROR;
		change += change_address(&ip6->saddr, to->source, 0) +
			  change_address(&ip6->daddr, to->destination, 0);
		icmp->check = adjust_checksum(icmp->check, change);
		return rewrite_ipv6(ip, to->source, to->destination) ? COUNTER_DROP_TTL : CONTINUE;
	}
	icmp->check = adjust_checksum(icmp->check, change);
	return rewrite_ipv4(ip, to->source, to->destination) ? COUNTER_DROP_TTL : CONTINUE;
}

/*
 * Translates an error to `to`; the quoted packet has the opposite direction. Returns CONTINUE,
 * or the exit.
 */
__noinline enum counter translate_error(struct xdp_md *ctx, const struct packet *p,
					const struct translation *to)
{
	__u64 addresses = 0, change = 0;
	int failed;

	if (!p || !to)
		return COUNTER_DROP_INTERNAL_ERROR;
	if (p->ipv4) {
		failed = quote_ipv4(ctx, p, to, &addresses);
	} else {
		failed = quote_ipv6(ctx, p, to, &addresses);
		change = addresses;
	}
	if (failed || quote_transport(ctx, p, to, addresses, &change))
		return COUNTER_DROP_INTERNAL_ERROR;
	return translate_message(ctx, p, to, change);
}
