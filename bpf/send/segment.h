/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * VXLAN (RFC 7348) and Geneve (RFC 8926): the client's packet is sent in an Ethernet frame of the
 * backend's segment, to the tunnel endpoint behind which the backend is.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/header.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "send/outer.h"

/* Bytes between UDP and the client's packet, the same for both. */
#define SEGMENT_HEADERS (sizeof(struct vxlan_header) + sizeof(struct ethhdr))
_Static_assert(sizeof(struct vxlan_header) == sizeof(struct geneve_header),
	       "SEGMENT_HEADERS is for both");

/* Writes the link-layer header inside the segment. */
static __always_inline void write_inner_link(struct ethhdr *eth, const struct packet *p,
					     const struct egress *out,
					     const struct backend_detail *detail)
{
	__builtin_memcpy(eth->h_dest, detail->mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, out->source, ETH_ALEN);
	eth->h_proto = p->proto;
}

static __noinline enum counter forward_vxlan(struct xdp_md *ctx, const struct packet *p,
					     const struct backend *b, const struct egress *out,
					     __u64 hash)
{
	struct backend_detail *detail = detail_of(b);
	struct vxlan_header *vxlan;
	struct udphdr *udp;

	if (!detail)
		return COUNTER_DROP_INTERNAL_ERROR;
	udp = write_udp(ctx, p, b, out, hash, VXLAN_PORT, SEGMENT_HEADERS);
	if (!udp)
		return COUNTER_DROP_HEADROOM;
	vxlan = (void *)(udp + 1);
	vxlan->flags = bpf_htonl(VXLAN_HAS_VNI);
	vxlan->vni = bpf_htonl(detail->segment << 8);
	write_inner_link((void *)(vxlan + 1), p, out, detail);
	finish_udp(ctx, p, b, out, udp, SEGMENT_HEADERS);
	return COUNTER_FORWARD_VXLAN;
}

static __noinline enum counter forward_geneve(struct xdp_md *ctx, const struct packet *p,
					      const struct backend *b, const struct egress *out,
					      __u64 hash)
{
	struct backend_detail *detail = detail_of(b);
	struct geneve_header *geneve;
	struct udphdr *udp;

	if (!detail)
		return COUNTER_DROP_INTERNAL_ERROR;
	udp = write_udp(ctx, p, b, out, hash, GENEVE_PORT, SEGMENT_HEADERS);
	if (!udp)
		return COUNTER_DROP_HEADROOM;
	geneve = (void *)(udp + 1);
	geneve->form = 0;
	geneve->flags = 0;
	geneve->proto = bpf_htons(GENEVE_ETHERNET);
	geneve->vni = bpf_htonl(detail->segment << 8);
	write_inner_link((void *)(geneve + 1), p, out, detail);
	finish_udp(ctx, p, b, out, udp, SEGMENT_HEADERS);
	return COUNTER_FORWARD_GENEVE;
}
