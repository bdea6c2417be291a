/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a packet and its backend to the frame that is sent. Each mode moves the start of the frame
 * once and writes everything in front of the client's IP packet anew; that packet itself stays as it
 * is, checksums included.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "config.h"
#include "parse.h"
#include "stats.h"
#include "types.h"

#define TUNNEL_TTL 64
#define IP_DONT_FRAGMENT 0x4000

/*
 * Makes room for `extra` bytes in front of the IP packet and writes the link layer: addresses, the
 * backend's VLAN tag or none, Ethertype. A tag that stays keeps its priority. Returns where the IP
 * packet (or the `extra` bytes, within `end`) begins, or NULL if there is no room.
 */
static __always_inline void *write_link(struct xdp_md *ctx, const struct packet *p,
					const struct backend *b, __be16 proto, __u32 extra)
{
	int tag = (int)sizeof(struct vlan_tag);
	int grow = (int)extra + (b->vlan ? tag : 0) - (p->tagged ? tag : 0);
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

/* L2 DSR: only the link layer is new. */
static __always_inline enum counter forward_l2dsr(struct xdp_md *ctx, const struct packet *p,
						  const struct backend *b)
{
	if (p->length > b->mtu)
		return COUNTER_DROP_TOO_BIG;
	if (!write_link(ctx, p, b, p->proto, 0))
		return COUNTER_DROP_HEADROOM;
	return COUNTER_FORWARD_L2DSR;
}

/* Internet checksum (RFC 1071) of a header without options whose checksum field is zero. */
static __always_inline __u16 ipv4_checksum(const struct iphdr *ip)
{
	const __u16 *words = (const __u16 *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < (int)sizeof(*ip) / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/*
 * IPv4 outside (RFC 2003 for IPv4 inside, RFC 4213 for IPv6). ECN and DSCP are copied (RFC 6040,
 * normal mode). "Don't fragment" is always set, so the identification may be zero (RFC 6864).
 */
static __always_inline enum counter forward_over_ipv4(struct xdp_md *ctx, const struct packet *p,
						      const struct backend *b)
{
	struct iphdr *ip;

	if (p->length + sizeof(*ip) > b->mtu)
		return COUNTER_DROP_TOO_BIG;
	ip = write_link(ctx, p, b, bpf_htons(ETH_P_IP), sizeof(*ip));
	if (!ip)
		return COUNTER_DROP_HEADROOM;
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = p->tos;
	ip->tot_len = bpf_htons(p->length + sizeof(*ip));
	ip->id = 0;
	ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = TUNNEL_TTL;
	ip->protocol = p->ipv4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	ip->check = 0;
	ip->saddr = unmap_ipv4(b->local);
	ip->daddr = unmap_ipv4(b->remote);
	ip->check = ipv4_checksum(ip);
	return COUNTER_FORWARD_IPIP;
}

/* IPv6 outside (RFC 2473). The flow label carries the flow's entropy (RFC 6438). */
static __always_inline enum counter forward_over_ipv6(struct xdp_md *ctx, const struct packet *p,
						      const struct backend *b, __u64 hash)
{
	struct ipv6hdr *ip;

	if (p->length + sizeof(*ip) > b->mtu)
		return COUNTER_DROP_TOO_BIG;
	ip = write_link(ctx, p, b, bpf_htons(ETH_P_IPV6), sizeof(*ip));
	if (!ip)
		return COUNTER_DROP_HEADROOM;
	ip->version = 6;
	ip->priority = p->tos >> 4;
	ip->flow_lbl[0] = p->tos << 4 | (hash >> 16 & 0x0f);
	ip->flow_lbl[1] = hash >> 8;
	ip->flow_lbl[2] = hash;
	ip->payload_len = bpf_htons(p->length);
	ip->nexthdr = p->ipv4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	ip->hop_limit = TUNNEL_TTL;
	__builtin_memcpy(&ip->saddr, b->local, 16);
	__builtin_memcpy(&ip->daddr, b->remote, 16);
	return COUNTER_FORWARD_IPIP;
}

/* Writes the frame. Returns a FORWARD exit, or the reason why not. */
static __always_inline enum counter encap(struct xdp_md *ctx, const struct packet *p,
					  const struct backend *b, __u64 hash)
{
	if (feature_l2dsr && b->forward == FORWARD_L2DSR)
		return forward_l2dsr(ctx, p, b);
	if (feature_ipip && b->forward == FORWARD_IPIP)
		return is_mapped(b->remote) ? forward_over_ipv4(ctx, p, b)
					    : forward_over_ipv6(ctx, p, b, hash);
	return COUNTER_DROP_STATE;
}
