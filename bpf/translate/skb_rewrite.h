/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Translation of addresses and ports in socket buffers, as nat/rewrite.h does it for XDP frames.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

#include "nat/rewrite.h"
#include "parse/skb.h"

/* Source and destination address as in a header. */
struct address_pair {
	__be32 words[8];
};

static __always_inline void fill_pair(struct address_pair *pair, const __u8 source[16],
				      const __u8 destination[16], int ipv4)
{
	if (ipv4) {
		pair->words[0] = unmap_ipv4(source);
		pair->words[1] = unmap_ipv4(destination);
	} else {
		__builtin_memcpy(pair->words, source, 16);
		__builtin_memcpy(pair->words + 4, destination, 16);
	}
}

/*
 * Offset of the checksum of a transport header at `at`. A UDP checksum of 0 means that there is
 * none.
 */
static __always_inline __u32 checksum_at(__u32 at, __u8 protocol, __u64 *flags)
{
	if (protocol == IPPROTO_TCP)
		return at + __builtin_offsetof(struct tcphdr, check);
	*flags |= BPF_F_MARK_MANGLED_0;
	return at + __builtin_offsetof(struct udphdr, check);
}

/* Sets the ports and updates the checksum for ports and addresses. */
static __always_inline int rewrite_skb_transport(struct __sk_buff *skb, const struct skb_packet *b,
						 const struct translation *to, __s64 change)
{
	__u32 at = skb_link + b->payload.header;
	__be16 was[2] = { b->p.source_port, b->p.vip.port };
	__be16 ports[2] = { to->source_port, to->port };
	__u64 flags = 0;
	__u32 check = checksum_at(at, b->payload.protocol, &flags);

	if (bpf_l4_csum_replace(skb, check, 0, change, flags | BPF_F_PSEUDO_HDR) ||
	    bpf_l4_csum_replace(skb, check, *(__u32 *)was, *(__u32 *)ports, flags | sizeof(ports)))
		return -1;
	return bpf_skb_store_bytes(skb, at, ports, sizeof(ports), 0);
}

/* Translates the packet and decrements its hop limit. Returns 0, or -1 if a helper fails. */
static __noinline int rewrite_skb(struct __sk_buff *skb, const struct skb_packet *b,
				  const struct translation *to)
{
	struct address_pair was = {}, is = {};
	__u32 size = b->p.ipv4 ? 8 : 32, at;
	__u8 hops = b->hops - 1;
	__s64 change;

	fill_pair(&was, b->p.source, b->p.vip.address, b->p.ipv4);
	fill_pair(&is, to->source, to->destination, b->p.ipv4);
	change = bpf_csum_diff(was.words, size, is.words, size, 0);
	if (b->p.ipv4) {
		at = skb_link + __builtin_offsetof(struct iphdr, check);
		if (bpf_l3_csum_replace(skb, at, 0, change, 0) ||
		    bpf_l3_csum_replace(skb, at, bpf_htons(b->hops << 8), bpf_htons(hops << 8), 2))
			return -1;
		at = skb_link + __builtin_offsetof(struct iphdr, ttl);
	} else {
		at = skb_link + __builtin_offsetof(struct ipv6hdr, hop_limit);
	}
	if (bpf_skb_store_bytes(skb, at, &hops, sizeof(hops), 0))
		return -1;
	at = skb_link + (b->p.ipv4 ? __builtin_offsetof(struct iphdr, saddr)
				   : __builtin_offsetof(struct ipv6hdr, saddr));
	if (bpf_skb_store_bytes(skb, at, is.words, size, 0))
		return -1;
	return b->p.fragment == FRAGMENT_LATER ? 0 : rewrite_skb_transport(skb, b, to, change);
}
