/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Building blocks of the balancer's own answers. An answer reuses the frame of its packet. It goes
 * from the VIP to the packet's source, with swapped link-layer addresses and the same VLAN tag;
 * with DSR it follows this node's routes.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/checksum.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "nat/path.h"
#include "send/outer.h"

/*
 * The path of answers to packets of services with DSR. The packet may have been relayed by a peer,
 * whose kernel would have to forward the answer without knowing the connection, so that a filter
 * may drop it as invalid. So answers follow this node's routes, as replies of backends do. They
 * leave through the ingress interface: if there is no route through it, they take the reverse path.
 *
 * Writes the link-layer addresses of the route into an untagged answer. Returns 0, or -1 if there
 * is no route.
 */
__noinline int route_answer(struct xdp_md *ctx, const struct packet *p)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct bpf_fib_lookup fib = {};

	if (!p || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return -1;
	if (find_client_route(ctx, &p->vip, p->source, p->source_port, ctx->ingress_ifindex,
			      &fib) != BPF_FIB_LKUP_RET_SUCCESS)
		return -1;
	if (fib.ifindex != ctx->ingress_ifindex)
		return -1;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return 0;
}

#define REPLY_TTL 64
#define IPV6_FLOW_LABEL_WORD 0x60000000 /* version 6, nothing else */

/*
 * Whether the packet may be answered with an error: it isn't an error, a later fragment, a
 * multicast, or from an address that isn't a single host's (RFC 1812, section 4.3.2.7; RFC 4443,
 * section 2.4). Packets in VXLAN and Geneve segments aren't answered, as the answer would have to
 * be encapsulated.
 */
static __always_inline int may_answer(struct xdp_md *ctx, const struct packet *p)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || eth->h_dest[0] & 1)
		return 0;
	return has_transport(p) && !p->overlay && is_unicast(p->source);
}

/* Trims the IP packet to `length` bytes. Returns 0, or an error. */
static __always_inline int trim(struct xdp_md *ctx, const struct packet *p, __u32 length)
{
	__u32 frame = ctx->data_end - ctx->data;

	return bpf_xdp_adjust_tail(ctx, (int)(packet_offset(p) + length) - (int)frame);
}

/*
 * Writes the link-layer header of the answer, from that of the packet, which is `extra` bytes into
 * the frame. Returns a pointer behind it, or NULL.
 */
static __always_inline void *reverse_link(struct xdp_md *ctx, const struct packet *p, __u32 extra)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct vlan_tag *tag = (void *)(eth + 1);
	struct ethhdr *old = (void *)eth + extra;
	__u8 old_destination[ETH_ALEN];

	if ((void *)(tag + 1) > end || (void *)(old + 1) > end)
		return NULL;
	__builtin_memcpy(old_destination, old->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, old->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, old_destination, ETH_ALEN);
	if (!p->tagged) {
		eth->h_proto = p->proto;
		if (feature_dsr && p->routed)
			route_answer(ctx, p);
		return tag;
	}
	eth->h_proto = bpf_htons(ETH_P_8021Q);
	tag->tci = p->tci;
	tag->proto = p->proto;
	return tag + 1;
}

/*
 * Sum of the pseudo-header for `length` bytes (RFC 9293, section 3.1; RFC 8200, section 8.1). The
 * prefix of mapped IPv4 addresses doesn't change it.
 */
static __always_inline __u64 pseudo_sum(const struct packet *p, __u8 protocol, __u32 length)
{
	const __u32 *source = (const __u32 *)p->source, *vip = (const __u32 *)p->vip.address;
	__u64 sum = bpf_htonl(length);

	sum += bpf_htonl(protocol);
	for (int i = 0; i < 4; i++)
		sum += (__u64)source[i] + vip[i];
	return sum;
}

/* Writes an IPv4 header from the VIP to the packet's source; `length` includes the payload. */
static __always_inline void write_ipv4(struct iphdr *ip, const struct packet *p, __u8 protocol,
				       __u8 tos, __u32 length)
{
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = tos;
	ip->tot_len = bpf_htons(length);
	ip->id = 0; /* RFC 6864: never fragmented */
	ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = REPLY_TTL;
	ip->protocol = protocol;
	ip->check = 0;
	ip->saddr = unmap_ipv4(p->vip.address);
	ip->daddr = unmap_ipv4(p->source);
	ip->check = ipv4_checksum(ip);
}

/* Writes an IPv6 header from the VIP to the packet's source; `length` is that of the payload. */
static __always_inline void write_ipv6(struct ipv6hdr *ip, const struct packet *p, __u8 protocol,
				       __u32 length)
{
	*(__be32 *)ip = bpf_htonl(IPV6_FLOW_LABEL_WORD);
	ip->payload_len = bpf_htons(length);
	ip->nexthdr = protocol;
	ip->hop_limit = REPLY_TTL;
	__builtin_memcpy(&ip->saddr, p->vip.address, 16);
	__builtin_memcpy(&ip->daddr, p->source, 16);
}
