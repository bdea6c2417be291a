/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The link layer of what is sent.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "parse.h"
#include "types.h"

/* Bytes in front of the client's packet that its next frame won't have. */
static __always_inline int old_headers(const struct packet *p)
{
	int tag = p->tagged ? (int)sizeof(struct vlan_tag) : 0;

	return feature_overlay ? tag + p->overlay : tag;
}

/*
 * Makes room for `extra` bytes in front of the IP packet and writes the link layer: addresses, the
 * tag of a VLAN (id, or 0 for none), Ethertype. A tag that stays keeps its priority. Returns where the
 * IP packet (or the `extra` bytes, within `end`) begins, or NULL if there is no room.
 */
static __always_inline void *write_frame(struct xdp_md *ctx, const struct packet *p,
					 const __u8 destination[ETH_ALEN],
					 const __u8 source[ETH_ALEN], __u16 vlan_id, __be16 proto,
					 __u32 extra)
{
	int tag = (int)sizeof(struct vlan_tag);
	int grow = (int)extra + (vlan_id ? tag : 0) - old_headers(p);
	struct ethhdr *eth;
	void *end, *next;

	if (grow && bpf_xdp_adjust_head(ctx, -grow))
		return NULL;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	next = eth + 1;
	if (next + tag + extra > end)
		return NULL;
	__builtin_memcpy(eth->h_dest, destination, ETH_ALEN);
	__builtin_memcpy(eth->h_source, source, ETH_ALEN);
	if (vlan_id) {
		struct vlan_tag *vlan = next;

		vlan->tci = (p->tci & bpf_htons((__u16)~VLAN_ID_MASK)) | bpf_htons(vlan_id);
		vlan->proto = proto;
		eth->h_proto = bpf_htons(ETH_P_8021Q);
		next = vlan + 1;
	} else {
		eth->h_proto = proto;
	}
	return next;
}

/* The same towards a backend. */
static __always_inline void *write_link(struct xdp_md *ctx, const struct packet *p,
					const struct backend *b, __be16 proto, __u32 extra)
{
	return write_frame(ctx, p, b->destination, b->source, b->vlan, proto, extra);
}

/*
 * A bridge never sends a frame back to the station that it came from. Two balancers that take each other
 * for a backend would otherwise pass a packet to and fro for ever: L2 DSR leaves its hop limit as it is,
 * as bridges do.
 */
static __always_inline int returns_to_sender(struct xdp_md *ctx, const struct packet *p,
					     const struct backend *b)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	const __u16 *from, *to = (const __u16 *)b->destination;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 1;
	from = (const __u16 *)eth->h_source;
	return from[2] == to[2] && from[1] == to[1] && from[0] == to[0] && !p->overlay &&
	       b->ifindex == ctx->ingress_ifindex && b->vlan == (bpf_ntohs(p->tci) & VLAN_ID_MASK);
}

/*
 * Whether the frame is for another station, where it can be told: it would leave by the interface and the
 * VLAN that it came in by, and so as from `b->source`. A switch gives frames to all while it doesn't know
 * where their station is, for example when that one has just died. Each balancer that took such a frame would
 * send it to the dead one again, and the switch to all of them. Interfaces keep such frames from the host
 * only when they aren't promiscuous, as ports of bridges are.
 */
static __always_inline int is_for_others(struct xdp_md *ctx, const struct packet *p,
					 const struct backend *b)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	const __u16 *to, *own = (const __u16 *)b->source;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	to = (const __u16 *)eth->h_dest;
	if (tracing && !(to[0] | to[1] | to[2])) /* nobody has said for whom it is */
		return 0;
	return (to[2] != own[2] || to[1] != own[1] || to[0] != own[0]) && !(eth->h_dest[0] & 1) &&
	       !p->overlay && b->ifindex == ctx->ingress_ifindex &&
	       b->vlan == (bpf_ntohs(p->tci) & VLAN_ID_MASK);
}

/* Out of the interface that the packet came in by, or out of another one. */
static __always_inline int transmit(struct xdp_md *ctx, __u32 ifindex)
{
	if (ifindex == ctx->ingress_ifindex)
		return XDP_TX;
	return bpf_redirect(ifindex, 0);
}
