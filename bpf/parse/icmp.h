/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parsing of ICMP (RFC 792) and ICMPv6 (RFC 4443). An error about a packet sent from a VIP is for
 * the backend that sent it: it is handled like a packet of the quoted flow. Echo requests are for
 * the address itself.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#include "core/address.h"
#include "core/exit.h"
#include "core/packet.h"
#include "parse/extension.h"
#include "parse/transport.h"

#define ICMP_UNREACHABLE 3
#define ICMP_UNREACHABLE_HOST 1
#define ICMP_UNREACHABLE_PORT 3
#define ICMP_UNREACHABLE_FRAGMENTATION 4
#define ICMP_ECHO_REQUEST 8
#define ICMP_ECHO_REPLY 0
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12

#define ICMP6_UNREACHABLE 1
#define ICMP6_UNREACHABLE_ADDRESS 3
#define ICMP6_UNREACHABLE_PORT 4
#define ICMP6_TOO_BIG 2
#define ICMP6_PARAMETER_PROBLEM 4 /* errors are 1 to 4 */
#define ICMP6_ECHO_REQUEST 128
#define ICMP6_ECHO_REPLY 129

/* The header of both versions. */
struct icmp {
	__u8 type;
	__u8 code;
	__u16 check;
	__be32 rest; /* depends on the type */
};

static __always_inline int is_icmp_error(const struct icmp *icmp, const struct packet *p)
{
	if (!p->ipv4)
		return icmp->type >= ICMP6_UNREACHABLE && icmp->type <= ICMP6_PARAMETER_PROBLEM;
	return icmp->type == ICMP_UNREACHABLE || icmp->type == ICMP_TIME_EXCEEDED ||
	       icmp->type == ICMP_PARAMETER_PROBLEM;
}

/*
 * Parses the ports of the quoted packet, which went from the VIP to the client. `header` is the
 * offset of its transport header, of which often only 8 bytes are quoted.
 */
static __always_inline enum counter parse_quoted_ports(struct xdp_md *ctx, __u32 header,
						       __u8 protocol, struct packet *p)
{
	__be16 *port = packet_at(ctx, p, header);

	if (!has_ports(protocol))
		return COUNTER_PASS_NOT_TCP_UDP;
	if ((void *)(port + 2) > (void *)(long)ctx->data_end ||
	    p->length < header + 2 * sizeof(*port))
		return COUNTER_PASS_TRUNCATED;
	p->vip.protocol = protocol;
	p->vip.port = port[0];
	p->source_port = port[1];
	p->phase = protocol == IPPROTO_TCP ? PHASE_OPEN : PHASE_DATAGRAM;
	p->quoted = 1;
	p->quote = header;
	return CONTINUE;
}

static __always_inline enum counter parse_quoted_ipv4(struct xdp_md *ctx, __u32 header,
						      struct packet *p)
{
	struct iphdr *ip = packet_at(ctx, p, header);

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return COUNTER_PASS_TRUNCATED;
	if (ip->version != 4 || ip->ihl < sizeof(*ip) / 4 ||
	    ip->saddr != unmap_ipv4(p->vip.address))
		return COUNTER_PASS_MALFORMED;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
		return COUNTER_PASS_FRAGMENT;
	map_ipv4(p->source, ip->daddr);
	return parse_quoted_ports(ctx, header + ip->ihl * 4, ip->protocol, p);
}

static __always_inline enum counter parse_quoted_ipv6(struct xdp_md *ctx, __u32 header,
						      struct packet *p)
{
	struct ipv6hdr *ip = packet_at(ctx, p, header);
	struct chain chain = {};
	enum counter exit;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return COUNTER_PASS_TRUNCATED;
	if (ip->version != 6 || !same_address(&ip->saddr, p->vip.address))
		return COUNTER_PASS_MALFORMED;
	__builtin_memcpy(p->source, &ip->daddr, 16);
	chain.next = ip->nexthdr;
	header += sizeof(*ip);
	exit = walk_extensions(ctx, packet_offset(p) + header, &chain);
	if (exit != CONTINUE)
		return exit;
	if (chain.fragment & FRAGMENT_OFFSET6)
		return COUNTER_PASS_FRAGMENT;
	return parse_quoted_ports(ctx, header + chain.length, chain.next, p);
}

/*
 * Parses the ICMP message at offset `header` in the IP packet. Returns CONTINUE for an echo
 * request or an error that quotes a flow, else the exit.
 */
static __always_inline enum counter parse_icmp(struct xdp_md *ctx, __u32 header, __u8 protocol,
					       struct packet *p)
{
	struct icmp *icmp = packet_at(ctx, p, header);

	if (protocol != (p->ipv4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return COUNTER_PASS_NOT_TCP_UDP;
	if ((void *)(icmp + 1) > (void *)(long)ctx->data_end || p->length < header + sizeof(*icmp))
		return COUNTER_PASS_TRUNCATED;
	p->header = header;
	if (icmp->type == (p->ipv4 ? ICMP_ECHO_REQUEST : ICMP6_ECHO_REQUEST)) {
		p->vip.protocol = protocol;
		p->phase = PHASE_DATAGRAM;
		return CONTINUE;
	}
	if (p->fragment || !is_icmp_error(icmp, p))
		return COUNTER_PASS_NOT_TCP_UDP;
	header += sizeof(*icmp);
	return p->ipv4 ? parse_quoted_ipv4(ctx, header, p) : parse_quoted_ipv6(ctx, header, p);
}
