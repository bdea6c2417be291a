/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Link-layer headers of outgoing frames.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/backend.h"
#include "core/config.h"
#include "core/packet.h"
#include "core/types.h"

/* Bytes between the Ethernet header and the client's packet, which are removed. */
static __always_inline int old_headers(const struct packet *p)
{
	int tag = p->tagged ? (int)sizeof(struct vlan_tag) : 0;

	return feature_overlay ? tag + p->overlay : tag;
}

/*
 * Makes room for `extra` bytes in front of the IP packet and writes the link-layer header:
 * addresses, VLAN tag (unless `vlan_id` is 0) and Ethertype. The priority of a VLAN tag is kept.
 * Returns a pointer behind the header, to at least `extra` bytes, or NULL if there is no room.
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
	copy_mac(eth->h_dest, destination);
	copy_mac(eth->h_source, source);
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

/* Writes the link-layer header towards a backend. */
static __always_inline void *write_link(struct xdp_md *ctx, const struct packet *p,
					const struct backend *b, const struct egress *out,
					__be16 proto, __u32 extra)
{
	return write_frame(ctx, p, b->destination, out->source, out->vlan, proto, extra);
}

/* Whether the packet would leave through the interface and VLAN of its arrival. */
static __always_inline int same_link(struct xdp_md *ctx, const struct packet *p,
				     const struct egress *out)
{
	return out->ifindex == ctx->ingress_ifindex &&
	       out->vlan == (bpf_ntohs(p->tci) & VLAN_ID_MASK) && !p->overlay;
}

/*
 * Whether the frame would go back to the host that sent it. As a bridge, L2 DSR doesn't decrement
 * the hop limit: two balancers that are each other's backends would loop packets for ever.
 */
static __always_inline int returns_to_sender(struct xdp_md *ctx, const struct packet *p,
					     const struct backend *b, const struct egress *out)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 1;
	return same_mac(eth->h_source, b->destination) && same_link(ctx, p, out);
}

/*
 * Whether the frame is for another host. This is known only if the packet would leave through the
 * interface and VLAN of its arrival, with `out->source` as its source. Switches flood frames whose
 * destination they don't know, for example a host that has just failed, and interfaces pass them on
 * if they are promiscuous, as ports of bridges are. If every balancer forwarded such a frame to the
 * failed host, the switch would flood it again.
 */
static __always_inline int is_other_host(struct xdp_md *ctx, const struct packet *p,
					 const struct egress *out)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	const __u16 *to;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || same_mac(eth->h_dest, out->source))
		return 0;
	to = (const __u16 *)eth->h_dest;
	if (tracing && !(to[0] | to[1] | to[2])) /* the described packet has no destination */
		return 0;
	return !(eth->h_dest[0] & 1) && same_link(ctx, p, out);
}

/* Sends the frame out of the ingress interface or another one. Returns the verdict. */
static __always_inline int transmit(struct xdp_md *ctx, __u32 ifindex)
{
	if (ifindex == ctx->ingress_ifindex)
		return XDP_TX;
	return bpf_redirect(ifindex, 0);
}
