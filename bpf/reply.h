/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every answer of the balancer itself is made of. An answer takes the frame of the packet that
 * it answers and goes back the way that one came: to its source, from the VIP, link-layer addresses
 * swapped and the VLAN tag kept; unless it has a way of its own (answer_route.h).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "answer_route.h"
#include "checksum.h"
#include "config.h"
#include "maps.h"
#include "outer.h"
#include "packet.h"

#define REPLY_TTL 64
#define IPV6_FLOW_LABEL_WORD 0x60000000 /* version 6, nothing else */

/*
 * A token bucket for each processor and kind of answer, so that nobody can make this node flood a third
 * party, and one kind of answer doesn't use up another's tokens. Its state is the time up to which it
 * is used up: every answer takes an interval (ns), and what is left over is good for one burst.
 */
static __always_inline int within_limit(enum answer kind, __u64 interval)
{
	__u64 *due = bpf_map_lookup_elem(&answer_limits, &kind);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (tracing)
		return 1;
	if (!due || *due > now)
		return 0;
	if (now - *due > ANSWER_BURST_NS)
		*due = now - ANSWER_BURST_NS;
	*due += interval;
	return 1;
}

/* One host's address (RFC 1122, section 3.2.2): the one that a packet with an answer may come from. */
static __always_inline int is_unicast(const struct packet *p)
{
	const __u32 *words = (const __u32 *)p->source;

	if (p->ipv4) {
		__u8 first = p->source[12];

		return first && first != 127 && first < 224;
	}
	return p->source[0] != 0xff &&
	       (words[0] || words[1] || words[2] || bpf_ntohl(words[3]) > 1);
}

/*
 * What must not be answered by an error: errors, later fragments, packets from no single host or to
 * many (RFC 1812, section 4.3.2.7; RFC 4443, section 2.4). What came inside a segment would have to be
 * put back there, and isn't answered either.
 */
static __always_inline int may_answer(struct xdp_md *ctx, const struct packet *p)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || eth->h_dest[0] & 1)
		return 0;
	return has_transport(p) && !p->overlay && is_unicast(p);
}

/* Cuts the frame off behind `length` bytes of the IP packet. Returns 0, or an error. */
static __always_inline int trim(struct xdp_md *ctx, const struct packet *p, __u32 length)
{
	__u32 frame = ctx->data_end - ctx->data;

	return bpf_xdp_adjust_tail(ctx, (int)(packet_offset(p) + length) - (int)frame);
}

/*
 * Writes the link layer of the answer at the start of the frame, from the one of the packet, which is
 * `extra` bytes further. Returns what is behind it, or NULL.
 */
static __always_inline void *turn_link(struct xdp_md *ctx, const struct packet *p, __u32 extra)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct vlan_tag *tag = (void *)(eth + 1);
	struct ethhdr *old = (void *)eth + extra;
	__u8 asked[ETH_ALEN];

	if ((void *)(tag + 1) > end || (void *)(old + 1) > end)
		return NULL;
	__builtin_memcpy(asked, old->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, old->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, asked, ETH_ALEN);
	if (!p->tagged) {
		eth->h_proto = p->proto;
		if (feature_dnat && p->routed)
			route_answer(ctx, p);
		return tag;
	}
	eth->h_proto = bpf_htons(ETH_P_8021Q);
	tag->tci = p->tci;
	tag->proto = p->proto;
	return tag + 1;
}

/*
 * The pseudo-header of `length` bytes (RFC 9293, section 3.1; RFC 8200, section 8.1). What makes an IPv4
 * address a mapped one adds nothing to a sum of this kind.
 */
static __always_inline __u64 pseudo_sum(const struct packet *p, __u8 protocol, __u32 length)
{
	const __u32 *source = (const __u32 *)p->source, *vip = (const __u32 *)p->vip.address;
	__u64 sum = bpf_htonl(length);

	sum += bpf_htonl(protocol);
	for (int i = 0; i < 4; i++)
		sum += (__u64)source[i] + vip[i];
	return sum;
}

/* An IPv4 header from the VIP to the packet's source, `length` bytes with what follows. */
static __always_inline void write_ipv4(struct iphdr *ip, const struct packet *p, __u8 protocol,
				       __u8 tos, __u32 length)
{
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = tos;
	ip->tot_len = bpf_htons(length);
	ip->id = 0; /* RFC 6864: it is never fragmented */
	ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = REPLY_TTL;
	ip->protocol = protocol;
	ip->check = 0;
	ip->saddr = unmap_ipv4(p->vip.address);
	ip->daddr = unmap_ipv4(p->source);
	ip->check = ipv4_checksum(ip);
}

/* The same for IPv6; `length` is that of what follows. */
static __always_inline void write_ipv6(struct ipv6hdr *ip, const struct packet *p, __u8 protocol,
				       __u32 length)
{
	*(__be32 *)ip = bpf_htonl(IPV6_FLOW_LABEL_WORD);
	ip->payload_len = bpf_htons(length);
	ip->nexthdr = protocol;
	ip->hop_limit = REPLY_TTL;
	__builtin_memcpy(&ip->saddr, p->vip.address, 16);
	__builtin_memcpy(&ip->daddr, p->source, 16);
}
