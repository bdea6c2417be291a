/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parses a frame up to the key of its VIP. Frames aren't modified. What can't be for a VIP gets its
 * exit here.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "parse/slow.h"
#include "parse/transport.h"

/* IPv4 (RFC 791), options included. */
static __always_inline enum counter parse_ipv4(struct xdp_md *ctx, void *start, void *end,
					       struct packet *p)
{
	struct iphdr *ip = start;
	__u32 header;

	if (start + sizeof(*ip) > end)
		return COUNTER_PASS_TRUNCATED;
	header = ip->ihl * 4;
	p->length = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header < sizeof(*ip) || p->length < header)
		return COUNTER_PASS_MALFORMED;
	if (p->length > end - start) /* the verifier of Linux 6.1 has no bound for start + length */
		return COUNTER_PASS_TRUNCATED;
	p->ipv4 = 1;
	p->tos = ip->tos;
	map_ipv4(p->source, ip->saddr);
	map_ipv4(p->vip.address, ip->daddr);
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_MASK) || !has_ports(ip->protocol))
		return parse_slow(ctx, p);
	return parse_ports(start + header, end, header, ip->protocol, p);
}

/* IPv6 (RFC 8200). */
static __always_inline enum counter parse_ipv6(struct xdp_md *ctx, void *start, void *end,
					       struct packet *p)
{
	struct ipv6hdr *ip = start;

	if (start + sizeof(*ip) > end)
		return COUNTER_PASS_TRUNCATED;
	p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (ip->version != 6)
		return COUNTER_PASS_MALFORMED;
	if (p->length > end - start)
		return COUNTER_PASS_TRUNCATED;
	p->ipv4 = 0;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	/* They stand for IPv4 in tables, and are on no wire (RFC 4291, section 2.5.5.2). */
	if (is_mapped((const __u8 *)&ip->saddr) || is_mapped((const __u8 *)&ip->daddr))
		return COUNTER_PASS_MALFORMED;
	__builtin_memcpy(p->source, &ip->saddr, 16);
	__builtin_memcpy(p->vip.address, &ip->daddr, 16);
	if (!has_ports(ip->nexthdr))
		return parse_slow(ctx, p);
	return parse_ports(start + sizeof(*ip), end, sizeof(*ip), ip->nexthdr, p);
}

/* Parses the payload of the link layer by its Ethertype. */
static __always_inline enum counter parse_ip(struct xdp_md *ctx, void *start, void *end,
					     struct packet *p)
{
	if (p->proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(ctx, start, end, p);
	if (p->proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(ctx, start, end, p);
	if (p->proto == bpf_htons(ETH_P_8021Q) || p->proto == bpf_htons(ETH_P_8021AD))
		return COUNTER_PASS_VLAN_STACKED;
	return COUNTER_PASS_NOT_IP;
}

/* Parses a frame. Returns COUNTER_COUNT if it may be for a VIP, else the exit. */
static __always_inline enum counter parse(struct xdp_md *ctx, struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *start = eth + 1;

	if (start > end)
		return COUNTER_PASS_TRUNCATED;
	p->proto = eth->h_proto;
	if (p->proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_tag *tag = start;

		start = tag + 1;
		if (start > end)
			return COUNTER_PASS_TRUNCATED;
		p->tagged = 1;
		p->tci = tag->tci;
		p->proto = tag->proto;
		p->vip.segment_id = bpf_ntohs(tag->tci) & VLAN_ID_MASK;
		/* ID 0 is a priority tag without a VLAN (IEEE 802.1Q, table 9-2). */
		p->vip.segment_type = p->vip.segment_id ? SEGMENT_VLAN : SEGMENT_NONE;
	}
	return parse_ip(ctx, start, end, p);
}
