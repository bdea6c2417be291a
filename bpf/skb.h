/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets in socket buffers. A buffer may hold several packets of a flow that were merged (GRO), parts of
 * it may be elsewhere in memory, and its checksum may still be due: it is read and written by the kernel's
 * helpers, which know all that.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "extension.h"
#include "fragment.h"
#include "packet.h"
#include "transport.h"

/* Bytes in front of the IP packet: ETH_HLEN, or 0 at a device without link layer. */
const volatile __u32 skb_link = ETH_HLEN;

/* The protocol that an IP header names; IPPROTO_NONE if there is none. */
static __always_inline __u8 skb_protocol(struct __sk_buff *skb)
{
	__u32 at = skb_link + __builtin_offsetof(struct iphdr, protocol);
	__u8 protocol = IPPROTO_NONE;

	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		at = skb_link + __builtin_offsetof(struct ipv6hdr, nexthdr);
	else if (skb->protocol != bpf_htons(ETH_P_IP))
		return IPPROTO_NONE;
	return bpf_skb_load_bytes(skb, at, &protocol, sizeof(protocol)) ? IPPROTO_NONE : protocol;
}

/* What a packet says about its connection, besides what struct packet has. */
struct skb_packet {
	struct packet p; /* seen from its receiver: `vip` is where it goes */
	struct payload payload;
	__u8 tcp_flags; /* as in the header's 14th byte */
	__u8 hops; /* time to live, or hop limit */
	__u16 pad;
};

static __always_inline int parse_skb_ipv4(struct __sk_buff *skb, struct skb_packet *b)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, skb_link, &ip, sizeof(ip)) || ip.version != 4 ||
	    ip.ihl < sizeof(ip) / 4)
		return -1;
	b->p.ipv4 = 1;
	b->p.length = bpf_ntohs(ip.tot_len);
	map_ipv4(b->p.source, ip.saddr);
	map_ipv4(b->p.vip.address, ip.daddr);
	b->hops = ip.ttl;
	b->payload.header = ip.ihl * 4;
	b->payload.protocol = ip.protocol;
	b->payload.id = ip.id;
	if (ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
		b->payload.fragment = FRAGMENT_LATER;
	else if (ip.frag_off & bpf_htons(IP_FRAGMENT_MASK))
		b->payload.fragment = FRAGMENT_FIRST;
	return 0;
}

/* Of extension headers only that of a fragment is known: servers send no others with TCP and UDP. */
static __always_inline int parse_skb_ipv6(struct __sk_buff *skb, struct skb_packet *b)
{
	struct extension fragment;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, skb_link, &ip, sizeof(ip)) || ip.version != 6)
		return -1;
	b->p.length = sizeof(ip) + bpf_ntohs(ip.payload_len);
	__builtin_memcpy(b->p.source, &ip.saddr, 16);
	__builtin_memcpy(b->p.vip.address, &ip.daddr, 16);
	b->hops = ip.hop_limit;
	b->payload.header = sizeof(ip);
	b->payload.protocol = ip.nexthdr;
	if (ip.nexthdr != IPPROTO_FRAGMENT)
		return 0;
	if (bpf_skb_load_bytes(skb, skb_link + sizeof(ip), &fragment, sizeof(fragment)))
		return -1;
	b->payload.header += sizeof(fragment);
	b->payload.protocol = fragment.next;
	b->payload.id = fragment.id;
	if (fragment.fragment & bpf_htons(FRAGMENT_OFFSET6))
		b->payload.fragment = FRAGMENT_LATER;
	else if (fragment.fragment & bpf_htons(FRAGMENT_MORE6))
		b->payload.fragment = FRAGMENT_FIRST;
	return 0;
}

/* Addresses, ports and what TCP says. Returns 0, or -1 if the packet has no ports in its place. */
static __always_inline int parse_skb_ports(struct __sk_buff *skb, struct skb_packet *b)
{
	__u32 at = skb_link + b->payload.header;
	__be16 ports[2];

	if (!has_ports(b->payload.protocol) || bpf_skb_load_bytes(skb, at, ports, sizeof(ports)))
		return -1;
	b->p.source_port = ports[0];
	b->p.vip.port = ports[1];
	b->p.vip.protocol = b->payload.protocol;
	b->p.phase = PHASE_DATAGRAM;
	if (b->payload.protocol != IPPROTO_TCP)
		return 0;
	b->p.phase = PHASE_OPEN;
	return bpf_skb_load_bytes(skb, at + 13, &b->tcp_flags, sizeof(b->tcp_flags));
}

/* IP headers. Returns 0, or -1 if this is no IP packet. */
static __always_inline int parse_skb(struct __sk_buff *skb, struct skb_packet *b)
{
	int failed = -1;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		failed = parse_skb_ipv4(skb, b);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		failed = parse_skb_ipv6(skb, b);
	b->p.header = b->payload.header;
	b->p.fragment = b->payload.fragment;
	return failed;
}
