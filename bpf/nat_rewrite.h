/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Translating a packet's addresses and ports, with all checksums that cover them. Checksums are
 * adjusted by what changes: what was wrong stays wrong, and nothing else of the packet is read.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "address.h"
#include "checksum.h"
#include "packet.h"
#include "stats.h"

/* What a packet is to have. */
struct translation {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 port;
};

/* What a sum changes by when an address does. Of IPv4, the word that counts. */
static __always_inline __u64 change_address(const void *from, const void *to, int ipv4)
{
	const __u32 *x = from, *y = to;
	__u64 sum = (__u64)~x[3] + y[3];

	if (!ipv4)
		for (int i = 0; i < 3; i++)
			sum += (__u64)~x[i] + y[i];
	return sum;
}

/* A UDP checksum of 0 says that there is none (RFC 768). */
static __always_inline __u16 adjust_udp(__u16 check, __u64 change)
{
	if (!check)
		return 0;
	check = adjust_checksum(check, change);
	return check ? check : 0xffff;
}

/* The new addresses, and one hop less (RFC 1812, section 5.3.1). Returns -1 if no hop was left. */
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

/* The new ports of the header at `start`; `change` is that of the sum of addresses. */
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
 * Translates the packet at `ip`. A later fragment has no ports, and its part of the checksum is in the
 * first one. Returns COUNTER_COUNT, or the exit.
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
			return COUNTER_DROP_STATE;
		if (rewrite_ipv4(ip, source, destination))
			return COUNTER_DROP_TTL;
	} else {
		if (ip + sizeof(struct ipv6hdr) > end)
			return COUNTER_DROP_STATE;
		if (rewrite_ipv6(ip, source, destination))
			return COUNTER_DROP_TTL;
	}
	if (p->fragment == FRAGMENT_LATER)
		return COUNTER_COUNT;
	return rewrite_ports(ip + (p->header & OFFSET_MASK), end, p, source_port, port, change)
		       ? COUNTER_DROP_STATE
		       : COUNTER_COUNT;
}
