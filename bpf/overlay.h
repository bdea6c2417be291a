/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services inside VXLAN (RFC 7348) and Geneve (RFC 8926) segments. A frame for a tunnel end point of
 * this node is read through to the packet inside, whose VIP is one of the segment. Nothing is written:
 * what is no VIP's stays as it came, and the kernel's own devices may have it.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "stats.h"
#include "tunnel.h"
#include "types.h"

/* Whether a packet that was parsed is for a tunnel end point of this node. */
static __always_inline int is_overlay(const struct packet *p)
{
	if (p->vip.protocol != IPPROTO_UDP || p->quoted)
		return 0;
	if (p->vip.port != bpf_htons(VXLAN_PORT) && p->vip.port != bpf_htons(GENEVE_PORT))
		return 0;
	return bpf_map_lookup_elem(&tunnel_ends, p->vip.address) != NULL;
}

/* The segment, from what follows UDP. Returns the length of the header, or 0 if it is not of a frame
 * that may be opened. */
static __always_inline __u32 parse_vxlan(void *start, void *end, struct packet *p)
{
	struct vxlan_header *vxlan = start;

	if ((void *)(vxlan + 1) > end || !(vxlan->flags & bpf_htonl(VXLAN_HAS_VNI)))
		return 0;
	p->vip.segment_type = SEGMENT_VXLAN;
	p->vip.segment_id = bpf_ntohl(vxlan->vni) >> 8;
	return sizeof(*vxlan);
}

/* The same; options that don't matter to a reader who doesn't know them are skipped. */
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
 * Replaces what is known of the outer packet by what the frame inside says. Returns COUNTER_COUNT if
 * that may be a VIP's, else the exit.
 */
static __noinline enum counter parse_overlay(struct xdp_md *ctx, struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	__u32 outer = p->header + sizeof(struct udphdr), whole = p->length, header;
	void *start = packet_at(ctx, p, outer);
	enum counter exit;
	struct ethhdr *eth;

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
	exit = parse_ip(ctx, eth + 1, end, p);
	if (exit == COUNTER_COUNT && p->overlay + p->length > whole)
		return COUNTER_PASS_MALFORMED;
	return exit;
}
