/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The outer headers that tunnels have in common: IPv4 or IPv6, and UDP.
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

#include "address.h"
#include "checksum.h"
#include "link.h"
#include "parse.h"
#include "types.h"

#define TUNNEL_TTL 64
#define IP_DONT_FRAGMENT 0x4000

/* Source ports of tunnels are the dynamic ones (RFC 7348, section 5; RFC 8926, section 3.3). */
#define TUNNEL_PORTS 0xc000
#define TUNNEL_PORT_MASK 0x3fff

/* The protocol number of the client's packet within another. */
static __always_inline __u8 ip_protocol(const struct packet *p)
{
	return p->ipv4 ? IPPROTO_IPIP : IPPROTO_IPV6;
}

/*
 * IPv4 outside. ECN and DSCP are copied (RFC 6040, normal mode). "Don't fragment" is always set, so
 * the identification may be zero (RFC 6864).
 */
static __always_inline void *write_outer_ipv4(struct xdp_md *ctx, const struct packet *p,
					      const struct backend *b, __u8 protocol, __u32 extra)
{
	struct iphdr *ip = write_link(ctx, p, b, bpf_htons(ETH_P_IP), sizeof(*ip) + extra);

	if (!ip)
		return NULL;
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = p->tos;
	ip->tot_len = bpf_htons(p->length + sizeof(*ip) + extra);
	ip->id = 0;
	ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = TUNNEL_TTL;
	ip->protocol = protocol;
	ip->check = 0;
	ip->saddr = unmap_ipv4(b->local);
	ip->daddr = unmap_ipv4(b->remote);
	ip->check = ipv4_checksum(ip);
	return ip + 1;
}

/* IPv6 outside. The flow label carries the flow's entropy (RFC 6438). */
static __always_inline void *write_outer_ipv6(struct xdp_md *ctx, const struct packet *p,
					      const struct backend *b, __u64 hash, __u8 protocol,
					      __u32 extra)
{
	struct ipv6hdr *ip = write_link(ctx, p, b, bpf_htons(ETH_P_IPV6), sizeof(*ip) + extra);

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
	__builtin_memcpy(&ip->saddr, b->local, 16);
	__builtin_memcpy(&ip->daddr, b->remote, 16);
	return ip + 1;
}

/*
 * Link layer and outer IP header, of the family of the tunnel's ends. Returns where the `extra` bytes
 * in front of the client's packet begin, or NULL if there is no room.
 */
static __always_inline void *write_outer(struct xdp_md *ctx, const struct packet *p,
					 const struct backend *b, __u64 hash, __u8 protocol,
					 __u32 extra)
{
	return is_mapped(b->remote) ? write_outer_ipv4(ctx, p, b, protocol, extra)
				    : write_outer_ipv6(ctx, p, b, hash, protocol, extra);
}

/*
 * The same with a UDP header, in front of `extra` bytes. The source port carries the flow's entropy,
 * so that routers and receive queues spread flows. The checksum is left at zero: see finish_udp.
 */
static __always_inline struct udphdr *write_udp(struct xdp_md *ctx, const struct packet *p,
						const struct backend *b, __u64 hash, __u16 port,
						__u32 extra)
{
	struct udphdr *udp = write_outer(ctx, p, b, hash, IPPROTO_UDP, sizeof(*udp) + extra);

	if (!udp)
		return NULL;
	udp->source = bpf_htons(TUNNEL_PORTS | (hash & TUNNEL_PORT_MASK));
	udp->dest = bpf_htons(port);
	udp->len = bpf_htons(sizeof(*udp) + extra + p->length);
	udp->check = 0;
	return udp;
}

/*
 * The checksum, when the `extra` bytes behind the UDP header are written. Over IPv4 it is left out, as
 * tunnels do. Over IPv6 many receivers want one (RFC 8200, section 8.1), Linux's VXLAN among them,
 * and it costs little.
 */
static __always_inline void finish_udp(struct xdp_md *ctx, const struct packet *p,
				       const struct backend *b, struct udphdr *udp, __u32 extra)
{
	void *end = (void *)(long)ctx->data_end;

	if (!is_mapped(b->remote))
		udp->check = tunnel_checksum(ctx, p, b, udp, extra, end);
}
