/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parsing of socket buffers. A buffer may be non-linear, contain several packets of a flow (GRO)
 * and have an incomplete checksum. The kernel's helpers, which handle all of that, do every access.
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

#include "core/address.h"
#include "core/packet.h"
#include "parse/extension.h"
#include "parse/fragment.h"
#include "parse/transport.h"

/* Length of the link-layer header: ETH_HLEN, or 0 at a device without one. */
const volatile __u32 skb_link = ETH_HLEN;

/* The protocol in the IP header; IPPROTO_NONE if there is none. */
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

/* A parsed packet in a socket buffer. */
struct skb_packet {
	struct packet p; /* `vip` is the destination */
	struct payload payload;
	struct segment segment;
	__u8 hops; /* time to live, or hop limit */
	__u8 pad[3];
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

/* Only the fragment header is parsed: servers send no other extension headers with TCP and UDP. */
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

/* Parses ports and what a session needs of a TCP header. Returns 0, or -1 if there are no ports. */
static __always_inline int parse_skb_ports(struct __sk_buff *skb, struct skb_packet *b)
{
	__u32 at = skb_link + b->payload.header;
	struct tcphdr tcp;
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
	if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)))
		return -1;
	b->segment.seq = tcp.seq;
	b->segment.ack = tcp.ack_seq;
	b->segment.flags = ((__u8 *)&tcp)[TCP_FLAGS];
	return 0;
}

/* Parses the IP headers. Returns 0, or -1 if this isn't an IP packet. */
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
