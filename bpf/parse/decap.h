/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decapsulation of IP in IP (RFC 2003, RFC 2473, RFC 4213) and GUE as balancers send them: without
 * IP options, extension headers, fragments and optional fields. GUE's UDP checksum isn't verified,
 * as the inner packet has its own.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/checksum.h"
#include "core/header.h"
#include "core/packet.h"
#include "core/types.h"
#include "parse/ip.h"

/* An encapsulated packet. */
struct tunnel {
	struct address source;
	struct address destination;
	struct address sender; /* source of the inner packet */
	__be16 proto; /* Ethertype of the inner packet */
	__u16 header; /* length of the outer headers */
	__u8 forward; /* FORWARD_IPIP or FORWARD_GUE */
	__u8 ecn; /* of the outer header: ECN_* */
	__u8 pad[2];
};

/* The codepoints of explicit congestion notification (RFC 3168, section 5). */
#define ECN_MASK 3
#define ECN_NONE 0
#define ECN_ECT1 1
#define ECN_CE 3

enum tunnel_form {
	TUNNEL_VALID,
	TUNNEL_NONE, /* not encapsulated */
	TUNNEL_TRUNCATED, /* the frame ends within a header */
};

static __always_inline enum tunnel_form read_inner(void *start, void *end, __u8 protocol,
						   struct tunnel *t)
{
	if (protocol == IPPROTO_IPIP) {
		struct iphdr *ip = start;

		if (start + sizeof(*ip) > end)
			return TUNNEL_TRUNCATED;
		t->proto = bpf_htons(ETH_P_IP);
		map_ipv4(t->sender.bytes, ip->saddr);
		return TUNNEL_VALID;
	}
	if (protocol == IPPROTO_IPV6) {
		struct ipv6hdr *ip = start;

		if (start + sizeof(*ip) > end)
			return TUNNEL_TRUNCATED;
		t->proto = bpf_htons(ETH_P_IPV6);
		__builtin_memcpy(t->sender.bytes, &ip->saddr, 16);
		return TUNNEL_VALID;
	}
	return TUNNEL_NONE;
}

static __always_inline enum tunnel_form read_gue(void *start, void *end, struct tunnel *t)
{
	struct udphdr *udp = start;
	struct gue_header *gue = (void *)(udp + 1);

	if ((void *)(gue + 1) > end)
		return TUNNEL_TRUNCATED;
	if (udp->dest != bpf_htons(GUE_PORT) || gue->form || gue->flags)
		return TUNNEL_NONE;
	t->header += sizeof(*udp) + sizeof(*gue);
	t->forward = FORWARD_GUE;
	return read_inner(gue + 1, end, gue->proto, t);
}

/* The payload of the outer IP packet. */
static __always_inline enum tunnel_form read_payload(void *start, void *end, __u8 protocol,
						     struct tunnel *t)
{
	if (protocol == IPPROTO_UDP)
		return read_gue(start, end, t);
	t->forward = FORWARD_IPIP;
	return read_inner(start, end, protocol, t);
}

/* Parses a frame without a VLAN tag. */
static __always_inline enum tunnel_form read_tunnel(void *data, void *end, struct tunnel *t)
{
	struct ethhdr *eth = data;
	void *start = eth + 1;

	if (start > end)
		return TUNNEL_TRUNCATED;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = start;

		if (start + sizeof(*ip) > end)
			return TUNNEL_TRUNCATED;
		if (ip->version != 4 || ip->ihl != sizeof(*ip) / 4 ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
			return TUNNEL_NONE;
		map_ipv4(t->source.bytes, ip->saddr);
		map_ipv4(t->destination.bytes, ip->daddr);
		t->ecn = ip->tos & ECN_MASK;
		t->header = sizeof(*ip);
		return read_payload(ip + 1, end, ip->protocol, t);
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = start;

		if (start + sizeof(*ip) > end)
			return TUNNEL_TRUNCATED;
		if (ip->version != 6)
			return TUNNEL_NONE;
		__builtin_memcpy(t->source.bytes, &ip->saddr, 16);
		__builtin_memcpy(t->destination.bytes, &ip->daddr, 16);
		t->ecn = ip->flow_lbl[0] >> 4 & ECN_MASK;
		t->header = sizeof(*ip);
		return read_payload(ip + 1, end, ip->nexthdr, t);
	}
	return TUNNEL_NONE;
}

/* Parses the inner packet. A later fragment gets neither protocol nor port. */
static __always_inline enum counter parse_inner(struct xdp_md *ctx, const struct tunnel *t,
						struct packet *inner)
{
	void *start, *end = (void *)(long)ctx->data_end;
	struct payload payload = {};
	enum counter exit;

	inner->overlay = t->header;
	inner->proto = t->proto;
	start = packet_at(ctx, inner, 0);
	if (t->proto == bpf_htons(ETH_P_IP))
		exit = read_ipv4(start, end, inner);
	else
		exit = read_ipv6(start, end, inner);
	if (exit == CONTINUE)
		exit = find_payload(ctx, inner, &payload);
	if (exit == CONTINUE && inner->fragment != FRAGMENT_LATER)
		exit = parse_payload(ctx, &payload, inner);
	return exit;
}

/*
 * The congestion mark of an inner packet with the mark `inner` (RFC 6040, section 4.2), or -1 if
 * the packet has to be dropped: its sender doesn't understand marks.
 */
static __always_inline int merge_ecn(__u8 inner, __u8 outer)
{
	if (inner == ECN_NONE && outer == ECN_CE)
		return -1;
	if (inner == ECN_NONE || inner == ECN_CE || (outer != ECN_CE && outer != ECN_ECT1))
		return inner;
	return outer;
}

/*
 * Merges the outer header's mark into the inner packet. Returns the packet's mark, or -1 if it has
 * to be dropped.
 */
static __always_inline int copy_ecn(void *start, void *end, int ipv4, __u8 outer)
{
	struct iphdr *ip = start;
	struct ipv6hdr *ip6 = start;
	__u16 *word = start, before; /* IPv4: version, length, type of service */
	int mark;

	if (ipv4) {
		if (start + sizeof(*ip) > end)
			return -1;
		mark = merge_ecn(ip->tos & ECN_MASK, outer);
		if (mark < 0)
			return -1;
		before = *word;
		ip->tos = (ip->tos & ~ECN_MASK) | mark;
		ip->check = adjust_checksum(ip->check, change_word(before, *word));
		return mark;
	}
	if (start + sizeof(*ip6) > end)
		return -1;
	mark = merge_ecn(ip6->flow_lbl[0] >> 4 & ECN_MASK, outer);
	if (mark < 0)
		return -1;
	ip6->flow_lbl[0] = (ip6->flow_lbl[0] & ~(ECN_MASK << 4)) | mark << 4;
	return mark;
}

enum decapped {
	DECAP_DONE,
	DECAP_FAILED, /* nothing is changed */
	DECAP_CONGESTED, /* the packet has to be dropped */
};

/* Removes the outer headers but keeps the link-layer addresses. */
static __always_inline enum decapped decap(struct xdp_md *ctx, const struct tunnel *t)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr link;

	if ((void *)(eth + 1) > end)
		return DECAP_FAILED;
	link = *eth;
	if (bpf_xdp_adjust_head(ctx, t->header))
		return DECAP_FAILED;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if ((void *)(eth + 1) > end)
		return DECAP_FAILED;
	link.h_proto = t->proto;
	*eth = link;
	if (copy_ecn(eth + 1, end, t->proto == bpf_htons(ETH_P_IP), t->ecn) < 0)
		return DECAP_CONGESTED;
	return DECAP_DONE;
}
