/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a frame to the key of its VIP. Parsing only reads; whatever can't be a VIP's leaves here, with
 * the counter that says why.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "stats.h"
#include "types.h"

#define VLAN_ID_MASK 0x0fff

struct vlan_tag {
	__be16 tci; /* priority (4 bits, with the drop eligible bit) and id (12) */
	__be16 proto;
};

/* What a packet says about the flow that it belongs to. */
enum phase {
	PHASE_OPEN, /* TCP: the connection was opened by an earlier packet */
	PHASE_OPENING, /* TCP SYN: the first packet of a connection */
	PHASE_DATAGRAM, /* UDP: any packet may be the first */
};

/* What the balancer knows of a packet. */
struct packet {
	struct vip_key vip __attribute__((aligned(8)));
	__u8 source[16] __attribute__((aligned(8)));
	__be16 source_port;
	__be16 proto; /* Ethertype behind the VLAN tag */
	__be16 tci;
	__u16 header; /* bytes from the start of the IP packet to its transport header */
	__u8 tagged; /* a VLAN tag is in the frame, also one of id 0 (priority tag) */
	__u8 ipv4;
	__u8 tos; /* type of service or traffic class */
	__u8 phase; /* enum phase */
	__u32 length; /* of the IP packet, header included */
	__u32 overlay; /* bytes of a segment's headers between link layer and packet (overlay.h) */
};

/* Bytes in front of the IP packet. */
static __always_inline __u32 link_length(const struct packet *p)
{
	return ETH_HLEN + (p->tagged ? sizeof(struct vlan_tag) : 0);
}

/*
 * Ports, from `start`, which is `header` bytes into the IP packet. Returns COUNTER_COUNT if the packet
 * may be a VIP's, else the exit.
 */
static __always_inline enum counter parse_transport(void *start, void *end, __u32 header,
						    __u8 protocol, struct packet *p)
{
	__be16 *port = start;
	struct tcphdr *tcp = start;
	__u32 size = sizeof(struct udphdr);

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return COUNTER_PASS_NOT_TCP_UDP;
	if ((void *)(port + 2) > end)
		return COUNTER_PASS_TRUNCATED;
	p->vip.protocol = protocol;
	p->source_port = port[0];
	p->vip.port = port[1];
	p->header = header;
	p->phase = PHASE_DATAGRAM;
	if (protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return COUNTER_PASS_TRUNCATED;
		p->phase = tcp->syn && !tcp->ack ? PHASE_OPENING : PHASE_OPEN;
		size = sizeof(*tcp);
	}
	if (start + size > end || p->length < header + size)
		return COUNTER_PASS_TRUNCATED;
	return COUNTER_COUNT;
}

/* IPv4 (RFC 791), options included. */
static __always_inline enum counter parse_ipv4(void *start, void *end, struct packet *p)
{
	struct iphdr *ip = start;
	__u32 header;

	if (start + sizeof(*ip) > end)
		return COUNTER_PASS_TRUNCATED;
	header = ip->ihl * 4;
	p->length = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header < sizeof(*ip) || p->length < header)
		return COUNTER_PASS_MALFORMED;
	if (start + p->length > end)
		return COUNTER_PASS_TRUNCATED;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
		return COUNTER_PASS_FRAGMENT;
	p->ipv4 = 1;
	p->tos = ip->tos;
	map_ipv4(p->source, ip->saddr);
	map_ipv4(p->vip.address, ip->daddr);
	return parse_transport(start + header, end, header, ip->protocol, p);
}

/* The headers that may stand between IPv6 and its transport (RFC 8200, section 4; RFC 7045). */
static __always_inline int is_extension_header(__u8 next)
{
	switch (next) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
	case IPPROTO_MH:
	case 139: /* Host Identity Protocol */
	case 140: /* Shim6 */
		return 1;
	}
	return 0;
}

/* IPv6 (RFC 8200). */
static __always_inline enum counter parse_ipv6(void *start, void *end, struct packet *p)
{
	struct ipv6hdr *ip = start;

	if (start + sizeof(*ip) > end)
		return COUNTER_PASS_TRUNCATED;
	p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (ip->version != 6)
		return COUNTER_PASS_MALFORMED;
	if (start + p->length > end)
		return COUNTER_PASS_TRUNCATED;
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return COUNTER_PASS_FRAGMENT;
	if (is_extension_header(ip->nexthdr))
		return COUNTER_PASS_EXTENSION_HEADER;
	p->ipv4 = 0;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	__builtin_memcpy(p->source, &ip->saddr, 16);
	__builtin_memcpy(p->vip.address, &ip->daddr, 16);
	return parse_transport(start + sizeof(*ip), end, sizeof(*ip), ip->nexthdr, p);
}

/* An IP packet, or whatever else the Ethertype says. */
static __always_inline enum counter parse_ip(void *start, void *end, struct packet *p)
{
	if (p->proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(start, end, p);
	if (p->proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(start, end, p);
	if (p->proto == bpf_htons(ETH_P_8021Q) || p->proto == bpf_htons(ETH_P_8021AD))
		return COUNTER_PASS_VLAN_STACKED;
	return COUNTER_PASS_NOT_IP;
}

/* The whole packet. Returns COUNTER_COUNT if it may be a VIP's, else the exit. */
static __always_inline enum counter parse(struct xdp_md *ctx, struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *start = eth + 1;

	if (start > end)
		return COUNTER_PASS_TRUNCATED;
	p->proto = eth->h_proto;
	if (p->proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_tag *tag = start;

		start = tag + 1;
		if (start > end)
			return COUNTER_PASS_TRUNCATED;
		p->tagged = 1;
		p->tci = tag->tci;
		p->proto = tag->proto;
		p->vip.segment_id = bpf_ntohs(tag->tci) & VLAN_ID_MASK;
		/* Id 0 marks a priority, not a network (IEEE 802.1Q, table 9-2). */
		p->vip.segment_type = p->vip.segment_id ? SEGMENT_VLAN : SEGMENT_NONE;
	}
	return parse_ip(start, end, p);
}
