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
 * backend's VLAN tag or none, Ethertype. A tag that stays keeps its priority. Returns where the IP
 * packet (or the `extra` bytes, within `end`) begins, or NULL if there is no room.
 */
static __always_inline void *write_link(struct xdp_md *ctx, const struct packet *p,
					const struct backend *b, __be16 proto, __u32 extra)
{
	int tag = (int)sizeof(struct vlan_tag);
	int grow = (int)extra + (b->vlan ? tag : 0) - old_headers(p);
	struct ethhdr *eth;
	void *end, *next;

	if (grow && bpf_xdp_adjust_head(ctx, -grow))
		return NULL;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	next = eth + 1;
	if (next + tag + extra > end)
		return NULL;
	__builtin_memcpy(eth->h_dest, b->destination, ETH_ALEN);
	__builtin_memcpy(eth->h_source, b->source, ETH_ALEN);
	if (b->vlan) {
		struct vlan_tag *vlan = next;

		vlan->tci = (p->tci & bpf_htons((__u16)~VLAN_ID_MASK)) | bpf_htons(b->vlan);
		vlan->proto = proto;
		eth->h_proto = bpf_htons(ETH_P_8021Q);
		next = vlan + 1;
	} else {
		eth->h_proto = proto;
	}
	return next;
}
