/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IP headers, and where their payload begins.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#include "core/address.h"
#include "core/exit.h"
#include "core/header.h"
#include "core/packet.h"
#include "parse/extension.h"
#include "parse/icmp.h"
#include "parse/transport.h"

/* IPv4 (RFC 791), options included. Returns CONTINUE, or the exit. */
static __always_inline enum counter read_ipv4(void *start, void *end, struct packet *p)
{
	struct iphdr *ip = start;

	if (start + sizeof(*ip) > end)
		return COUNTER_PASS_TRUNCATED;
	p->length = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < sizeof(*ip) / 4 || p->length < ip->ihl * 4)
		return COUNTER_PASS_MALFORMED;
	if (p->length > end - start) /* the verifier of Linux 6.1 has no bound for start + length */
		return COUNTER_PASS_TRUNCATED;
	p->ipv4 = 1;
	p->tos = ip->tos;
	map_ipv4(p->source, ip->saddr);
	map_ipv4(p->vip.address, ip->daddr);
	return CONTINUE;
}

/* IPv6 (RFC 8200). */
static __always_inline enum counter read_ipv6(void *start, void *end, struct packet *p)
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
	return CONTINUE;
}

/* The payload of an IP packet. */
struct payload {
	__u32 header; /* offset in the IP packet */
	__u32 id; /* identification of a fragment */
	__u8 protocol;
	__u8 fragment; /* enum fragment_part */
};

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
	return CONTINUE;
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

/* Finds the payload of a packet whose addresses have been parsed. */
static __always_inline enum counter find_payload(struct xdp_md *ctx, struct packet *p,
						 struct payload *payload)
{
	enum counter exit =
		p->ipv4 ? find_payload4(ctx, p, payload) : find_payload6(ctx, p, payload);

	p->fragment = payload->fragment;
	return exit;
}

/* Parses the payload, which isn't that of a later fragment. */
static __always_inline enum counter parse_payload(struct xdp_md *ctx, const struct payload *payload,
						  struct packet *p)
{
	if (!has_ports(payload->protocol))
		return parse_icmp(ctx, payload->header, payload->protocol, p);
	return parse_ports(packet_at(ctx, p, payload->header), (void *)(long)ctx->data_end,
			   payload->header, payload->protocol, p);
}
