/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services in VXLAN (RFC 7348) and Geneve (RFC 8926) segments. Of a packet from a tunnel peer to a
 * tunnel endpoint of this node, the inner packet is parsed, whose VIP belongs to the segment. The packet isn't
 * modified: if it is for no VIP, the kernel's own tunnel devices may receive it.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/header.h"
#include "core/maps.h"
#include "core/stats.h"
#include "core/types.h"
#include "parse/decap.h"
#include "parse/parse.h"

/* Whether a parsed packet is for a tunnel endpoint of this node. */
static __always_inline int is_overlay(const struct packet *p)
{
	if (p->vip.protocol != IPPROTO_UDP || p->quoted)
		return 0;
	if (p->vip.port != bpf_htons(VXLAN_PORT) && p->vip.port != bpf_htons(GENEVE_PORT))
		return 0;
	return bpf_map_lookup_elem(&tunnel_ends, p->vip.address) != NULL;
}

/* Whether the packet's source may send frames of segments: nothing within them is authenticated. */
static __always_inline int is_tunnel_peer(const struct packet *p)
{
	struct prefix_key key = { .prefix_length = 8 * sizeof(key.address) };

	__builtin_memcpy(key.address, p->source, sizeof(key.address));
	return bpf_map_lookup_elem(&tunnel_peers, &key) != NULL;
}

/*
 * Parses the segment from the header after UDP. Returns the header's length, or 0 if it isn't
 * followed by an Ethernet frame of a segment.
 */
static __always_inline __u32 parse_vxlan(void *start, void *end, struct packet *p)
{
	struct vxlan_header *vxlan = start;

	if ((void *)(vxlan + 1) > end || !(vxlan->flags & bpf_htonl(VXLAN_HAS_VNI)))
		return 0;
	p->vip.segment_type = SEGMENT_VXLAN;
	p->vip.segment_id = bpf_ntohl(vxlan->vni) >> 8;
	return sizeof(*vxlan);
}

/* The same for Geneve. Options that aren't critical are skipped. */
static __always_inline __u32 parse_geneve(void *start, void *end, struct packet *p)
{
	struct geneve_header *geneve = start;

	if ((void *)(geneve + 1) > end || geneve->form & GENEVE_VERSION ||
	    geneve->flags & GENEVE_NOT_DATA || geneve->proto != bpf_htons(GENEVE_ETHERNET))
		return 0;
	p->vip.segment_type = SEGMENT_GENEVE;
	p->vip.segment_id = bpf_ntohl(geneve->vni) >> 8;
	return sizeof(*geneve) + (geneve->form & GENEVE_LENGTH) * 4;
}

/*
 * Replaces the parsed outer packet by the inner one. Returns CONTINUE if that may be for a
 * VIP, else the exit.
 */
static __noinline enum counter parse_overlay(struct xdp_md *ctx, struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	__u32 outer = p->header + sizeof(struct udphdr), whole = p->length, header;
	void *start = packet_at(ctx, p, outer);
	enum counter exit;
	struct ethhdr *eth;

	if (!is_tunnel_peer(p))
		return COUNTER_PASS_NOT_TUNNEL_PEER;
	if (p->fragment)
		return COUNTER_PASS_FRAGMENT;
	header = p->vip.port == bpf_htons(VXLAN_PORT) ? parse_vxlan(start, end, p)
						      : parse_geneve(start, end, p);
	if (!header)
		return COUNTER_PASS_OVERLAY;
	outer += header;
	eth = packet_at(ctx, p, outer);
	if ((void *)(eth + 1) > end)
		return COUNTER_PASS_TRUNCATED;
	p->overlay = outer + sizeof(*eth);
	p->proto = eth->h_proto;
	p->ecn = p->tos & ECN_MASK;
	exit = parse_ip(ctx, eth + 1, end, p);
	if (exit == CONTINUE && p->overlay + p->length > whole)
		return COUNTER_PASS_MALFORMED;
	return exit;
}

/*
 * Gives a packet of a segment the congestion mark of its outer header, which will be removed.
 * Returns 0, or -1 if it has to be dropped.
 */
__noinline int merge_outer_ecn(struct xdp_md *ctx, struct packet *p)
{
	int mark;

	if (!p)
		return -1;
	mark = copy_ecn(packet_at(ctx, p, 0), (void *)(long)ctx->data_end, p->ipv4, p->ecn);
	if (mark < 0)
		return -1;
	p->tos = (p->tos & ~ECN_MASK) | mark;
	return 0;
}
