/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The slow path of parsing: packets whose ports don't follow a plain IP header. These are
 * fragments, packets with IPv6 extension headers, ICMP, and packets that aren't for a VIP.
 *
 * Functions of this path are global, so that the verifier checks each of them once instead of once
 * per call path. Their pointers are never NULL, which the verifier requires to be checked.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#include "core/address.h"
#include "core/packet.h"
#include "core/stats.h"
#include "parse/extension.h"
#include "parse/fragment.h"
#include "parse/icmp.h"
#include "parse/transport.h"

static __always_inline enum counter find_payload4(struct xdp_md *ctx, const struct packet *p,
						  struct payload *payload)
{
	struct iphdr *ip = packet_at(ctx, p, 0);

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return COUNTER_PASS_TRUNCATED;
	payload->header = ip->ihl * 4;
	payload->protocol = ip->protocol;
	payload->id = ip->id;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
		payload->fragment = FRAGMENT_LATER;
	else if (ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
		payload->fragment = FRAGMENT_FIRST;
	return COUNTER_COUNT;
}

static __always_inline enum counter find_payload6(struct xdp_md *ctx, const struct packet *p,
						  struct payload *payload)
{
	struct ipv6hdr *ip = packet_at(ctx, p, 0);
	struct chain chain = {};
	enum counter exit;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return COUNTER_PASS_TRUNCATED;
	chain.next = ip->nexthdr;
	exit = walk_extensions(ctx, packet_offset(p) + sizeof(*ip), &chain);
	payload->header = sizeof(*ip) + chain.length;
	payload->protocol = chain.next;
	payload->id = chain.id;
	if (chain.fragment & FRAGMENT_OFFSET6)
		payload->fragment = FRAGMENT_LATER;
	else if (chain.fragment & FRAGMENT_MORE6)
		payload->fragment = FRAGMENT_FIRST;
	return exit;
}

/*
 * Addresses have been parsed. Returns COUNTER_COUNT if the packet may be for a VIP, else the exit.
 */
__noinline enum counter parse_slow(struct xdp_md *ctx, struct packet *p)
{
	struct payload payload = {};
	enum counter exit;
	void *start;

	if (!p)
		return COUNTER_PASS_MALFORMED;
	exit = p->ipv4 ? find_payload4(ctx, p, &payload) : find_payload6(ctx, p, &payload);
	if (exit != COUNTER_COUNT)
		return exit;
	p->fragment = payload.fragment;
	if (payload.fragment == FRAGMENT_LATER)
		return find_fragment(p, &payload);
	start = packet_at(ctx, p, payload.header);
	if (has_ports(payload.protocol))
		exit = parse_ports(start, (void *)(long)ctx->data_end, payload.header,
				   payload.protocol, p);
	else
		exit = parse_icmp(ctx, payload.header, payload.protocol, p);
	if (exit == COUNTER_COUNT && p->fragment)
		record_fragment(p, &payload);
	return exit;
}
