/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Outer headers of tunnels: IPv4 or IPv6, and UDP.
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
#include "core/packet.h"
#include "core/types.h"
#include "send/link.h"

#define TUNNEL_TTL 64
#define IP_DONT_FRAGMENT 0x4000

/*
 * Source ports of tunnels are from the dynamic range (RFC 7348, section 5; RFC 8926, section 3.3).
 */
#define TUNNEL_PORTS 0xc000
#define TUNNEL_PORT_MASK 0x3fff

/* The protocol number of the client's packet inside another IP packet. */
static __always_inline __u8 ip_protocol(const struct packet *p)
{
	return p->ipv4 ? IPPROTO_IPIP : IPPROTO_IPV6;
}

/*
 * Writes an outer IPv4 header. ECN and DSCP are copied (RFC 6040, normal mode). "Don't fragment" is
 * always set, so the identification may be zero (RFC 6864). Words are written and summed up in
 * registers: the processor would wait for a sum of words that were written as bytes.
 */
static __always_inline void *write_outer_ipv4(struct xdp_md *ctx, const struct packet *p,
					      const struct backend *b, const struct egress *out,
					      const __u8 to[16], __u8 protocol, __u32 extra)
{
	void *ip = write_link(ctx, p, b, out, bpf_htons(ETH_P_IP), sizeof(struct iphdr) + extra);
	__u32 length = p->length + sizeof(struct iphdr) + extra;
	__be32 local = unmap_ipv4(out->local), remote = unmap_ipv4(to);
	__u16 first = bpf_htons(0x4500 | p->tos), lived = bpf_htons(TUNNEL_TTL << 8 | protocol);
	__be32 *words = ip;
	__u32 check;

	if (!ip)
		return NULL;
	check = first + bpf_htons(length) + bpf_htons(IP_DONT_FRAGMENT) + lived;
	check += (local & 0xffff) + (local >> 16) + (remote & 0xffff) + (remote >> 16);
	words[0] = first | (__u32)bpf_htons(length) << 16;
	words[1] = (__u32)bpf_htons(IP_DONT_FRAGMENT) << 16;
	words[2] = lived | (__u32)(__u16)~fold(check) << 16;
	words[3] = local;
	words[4] = remote;
	return words + 5;
}

/* Writes an outer IPv6 header. The flow label carries the flow's entropy (RFC 6438). */
static __always_inline void *write_outer_ipv6(struct xdp_md *ctx, const struct packet *p,
					      const struct backend *b, const struct egress *out,
					      const __u8 to[16], __u64 hash, __u8 protocol,
					      __u32 extra)
{
	struct ipv6hdr *ip = write_link(ctx, p, b, out, bpf_htons(ETH_P_IPV6), sizeof(*ip) + extra);

	if (!ip)
		return NULL;
	ip->version = 6;
	ip->priority = p->tos >> 4;
	ip->flow_lbl[0] = p->tos << 4 | (hash >> 16 & 0x0f);
	ip->flow_lbl[1] = hash >> 8;
	ip->flow_lbl[2] = hash;
	ip->payload_len = bpf_htons(p->length + extra);
	ip->nexthdr = protocol;
	ip->hop_limit = TUNNEL_TTL;
	__builtin_memcpy(&ip->saddr, out->local, 16);
	__builtin_memcpy(&ip->daddr, to, 16);
	return ip + 1;
}

/*
 * Writes the link-layer header and the outer IP header. Returns a pointer to the `extra` bytes in
 * front of the client's packet, or NULL if there is no room.
 */
static __always_inline void *write_outer(struct xdp_md *ctx, const struct packet *p,
					 const struct backend *b, const struct egress *out,
					 __u64 hash, __u8 protocol, __u32 extra)
{
	const __u8 *to = remote_of(b);

	if (!to)
		return NULL;
	return is_mapped(to) ? write_outer_ipv4(ctx, p, b, out, to, protocol, extra)
			     : write_outer_ipv6(ctx, p, b, out, to, hash, protocol, extra);
}

/*
 * Writes link-layer, outer IP and UDP headers, in front of `extra` bytes. The source port carries
 * the flow's entropy, so that routers and receive queues spread flows. The checksum is set by
 * finish_udp().
 */
static __always_inline struct udphdr *write_udp(struct xdp_md *ctx, const struct packet *p,
						const struct backend *b, const struct egress *out,
						__u64 hash, __u16 port, __u32 extra)
{
	struct udphdr *udp = write_outer(ctx, p, b, out, hash, IPPROTO_UDP, sizeof(*udp) + extra);

	if (!udp)
		return NULL;
	udp->source = bpf_htons(TUNNEL_PORTS | (hash & TUNNEL_PORT_MASK));
	udp->dest = bpf_htons(port);
	udp->len = bpf_htons(sizeof(*udp) + extra + p->length);
	udp->check = 0;
	return udp;
}

/*
 * Writes the UDP checksum once the `extra` bytes after the header are written. Over IPv4 it stays
 * zero, as usual for tunnels. Over IPv6 many receivers require it (RFC 8200, section 8.1), for
 * example Linux's VXLAN.
 */
static __always_inline void finish_udp(struct xdp_md *ctx, const struct packet *p,
				       const struct backend *b, const struct egress *out,
				       struct udphdr *udp, __u32 extra)
{
	void *end = (void *)(long)ctx->data_end;
	const __u8 *to = remote_of(b);

	if (to && !is_mapped(to))
		udp->check = tunnel_checksum(ctx, p, out->local, to, udp, extra, end);
}
