/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The slow path of parsing: packets whose ports aren't right behind a plain IP header. These are
 * fragments, IPv6 extension headers and ICMP; and all that is nobody's.
 *
 * Functions of this path are not static: so the verifier looks at each of them once, whatever calls it,
 * instead of once for each way that leads there. Their pointers are never NULL, which it doesn't know.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#include "address.h"
#include "extension.h"
#include "fragment.h"
#include "icmp.h"
#include "packet.h"
#include "stats.h"
#include "transport.h"

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

/* Addresses have been parsed. Returns COUNTER_COUNT if the packet may be a VIP's, else the exit. */
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
		return recall_fragment(p, &payload);
	start = packet_at(ctx, p, payload.header);
	if (has_ports(payload.protocol))
		exit = parse_ports(start, (void *)(long)ctx->data_end, payload.header,
				   payload.protocol, p);
	else
		exit = parse_icmp(ctx, payload.header, payload.protocol, p);
	if (exit == COUNTER_COUNT && p->fragment)
		note_fragment(p, &payload);
	return exit;
}
