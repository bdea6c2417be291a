/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Translation of addresses and ports, decrement of hop limits, and the checksums that cover them.
 * Checksums are updated incrementally: wrong ones stay wrong, and the payload isn't read.
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

/* No limit but the packet's own. */
#define HOPS_ANY 255

/* The packet's TTL or hop limit; 0 if the packet is truncated. */
static __always_inline __u32 hops_left(struct xdp_md *ctx, const struct packet *p)
{
	struct ipv6hdr *ip = packet_at(ctx, p, 0);

	if ((void *)ip + sizeof(struct iphdr) > (void *)(long)ctx->data_end)
		return 0;
	return p->ipv4 ? ((struct iphdr *)ip)->ttl : ip->hop_limit;
}

/*
 * Decrements the hop limit of the packet at `start` and limits it to `most`. Returns CONTINUE,
 * or the exit.
 */
static __always_inline enum counter spend_hop(struct xdp_md *ctx, const struct packet *p,
					      void *start, __u8 most)
{
	void *end = (void *)(long)ctx->data_end;

	if (p->ipv4) {
		struct iphdr *ip = start;
		__u16 *hops = (__u16 *)&ip->ttl, before; /* and the protocol */

		if ((void *)(ip + 1) > end)
			return COUNTER_DROP_INTERNAL_ERROR;
		if (ip->ttl <= 1)
			return COUNTER_DROP_TTL;
		before = *hops;
		ip->ttl = ip->ttl - 1 < most ? ip->ttl - 1 : most;
		ip->check = adjust_checksum(ip->check, change_word(before, *hops));
	} else {
		struct ipv6hdr *ip = start;

		if ((void *)(ip + 1) > end)
			return COUNTER_DROP_INTERNAL_ERROR;
		if (ip->hop_limit <= 1)
			return COUNTER_DROP_TTL;
		ip->hop_limit = ip->hop_limit - 1 < most ? ip->hop_limit - 1 : most;
	}
	return CONTINUE;
}

/* New addresses and ports of a packet. */
struct translation {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 port;
};

/* Change of a sum when an address changes; of a mapped IPv4 address only the last word matters. */
static __always_inline __u64 change_address(const void *from, const void *to, int ipv4)
{
	const __u32 *x = from, *y = to;
	__u64 sum = (__u64)~x[3] + y[3];

	if (!ipv4)
		for (int i = 0; i < 3; i++)
			sum += (__u64)~x[i] + y[i];
	return sum;
}

/* A UDP checksum of 0 means that there is none (RFC 768). */
static __always_inline __u16 adjust_udp(__u16 check, __u64 change)
{
	if (!check)
		return 0;
	check = adjust_checksum(check, change);
	return check ? check : 0xffff;
}

/*
 * Sets addresses and decrements the TTL (RFC 1812, section 5.3.1). Returns -1 if the TTL is
 * exceeded.
 */
static __always_inline int rewrite_ipv4(struct iphdr *ip, const __u8 source[16],
					const __u8 destination[16])
{
	__u16 *hops = (__u16 *)&ip->ttl; /* and the protocol */
	__be32 from = unmap_ipv4(source), to = unmap_ipv4(destination);
	__u64 change = (__u64)~ip->saddr + from + (__u32)~ip->daddr + to;
	__u16 before = *hops;

	if (ip->ttl <= 1)
		return -1;
	ip->ttl--;
	ip->check = adjust_checksum(ip->check, change + change_word(before, *hops));
	ip->saddr = from;
	ip->daddr = to;
	return 0;
}

static __always_inline int rewrite_ipv6(struct ipv6hdr *ip, const __u8 source[16],
					const __u8 destination[16])
{
	if (ip->hop_limit <= 1)
		return -1;
	ip->hop_limit--;
	__builtin_memcpy(&ip->saddr, source, 16);
	__builtin_memcpy(&ip->daddr, destination, 16);
	return 0;
}

/* Sets the ports of the header at `start`; `change` is the change of the addresses' sum. */
static __always_inline int rewrite_ports(void *start, const void *end, const struct packet *p,
					 __be16 source_port, __be16 port, __u64 change)
{
	struct udphdr *udp = start;
	struct tcphdr *tcp = start;

	change += change_word(p->source_port, source_port) + change_word(p->vip.port, port);
	if ((void *)(udp + 1) > end)
		return -1;
	udp->source = source_port;
	udp->dest = port;
	if (p->vip.protocol == IPPROTO_UDP) {
		udp->check = adjust_udp(udp->check, change);
		return 0;
	}
	if ((void *)(tcp + 1) > end)
		return -1;
	tcp->check = adjust_checksum(tcp->check, change);
	return 0;
}

/*
 * Translates the packet at `ip`. Later fragments have neither ports nor a checksum. Returns
 * CONTINUE, or the exit.
 */
static __always_inline enum counter translate(struct xdp_md *ctx, const struct packet *p, void *ip,
					      const __u8 source[16], const __u8 destination[16],
					      __be16 source_port, __be16 port)
{
	void *end = (void *)(long)ctx->data_end;
	__u64 change = change_address(p->source, source, p->ipv4) +
		       change_address(p->vip.address, destination, p->ipv4);

	if (p->ipv4) {
		if (ip + sizeof(struct iphdr) > end)
			return COUNTER_DROP_INTERNAL_ERROR;
		if (rewrite_ipv4(ip, source, destination))
			return COUNTER_DROP_TTL;
	} else {
		if (ip + sizeof(struct ipv6hdr) > end)
			return COUNTER_DROP_INTERNAL_ERROR;
		if (rewrite_ipv6(ip, source, destination))
			return COUNTER_DROP_TTL;
	}
	if (p->fragment == FRAGMENT_LATER)
		return CONTINUE;
	return rewrite_ports(ip + (p->header & OFFSET_MASK), end, p, source_port, port, change)
		       ? COUNTER_DROP_INTERNAL_ERROR
		       : CONTINUE;
}
