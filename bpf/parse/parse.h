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
#include "parse/ip.h"
#include "parse/slow.h"
#include "parse/transport.h"

static __always_inline enum counter parse_ipv4(struct xdp_md *ctx, void *start, void *end,
					       struct packet *p)
{
	enum counter exit = read_ipv4(start, end, p);
	struct iphdr *ip = start;

	if (exit != CONTINUE)
		return exit;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_MASK) || !has_ports(ip->protocol))
		return parse_slow(ctx, p);
	return parse_ports(start + ip->ihl * 4, end, ip->ihl * 4, ip->protocol, p);
}

static __always_inline enum counter parse_ipv6(struct xdp_md *ctx, void *start, void *end,
					       struct packet *p)
{
	enum counter exit = read_ipv6(start, end, p);
	struct ipv6hdr *ip = start;

	if (exit != CONTINUE)
		return exit;
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

/* Parses a frame. Returns CONTINUE if it may be for a VIP, else the exit. */
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
