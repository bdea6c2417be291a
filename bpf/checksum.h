/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Internet checksums (RFC 1071). Sums are of 16-bit words as they lie in memory: their byte order
 * doesn't matter.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "packet.h"
#include "types.h"

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The same for sums of longer words. */
static __always_inline __u16 fold_wide(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum & 0xffffffff);
	return fold(sum);
}

/* What a sum changes by when a word does. */
static __always_inline __u64 change_word(__u16 from, __u16 to)
{
	return (__u64)(__u16)~from + to;
}

/* A checksum after what it covers has changed (RFC 1624, equation 3). */
static __always_inline __u16 adjust_checksum(__u16 check, __u64 change)
{
	return ~fold_wide((__u16)~check + change);
}

/* Sum of `size` bytes, an even and constant number. */
static __always_inline __u32 sum_words(const void *start, __u32 size)
{
	const __u16 *words = start;
	__u32 sum = 0;

#pragma unroll
	for (__u32 i = 0; i < size / 2; i++)
		sum += words[i];
	return sum;
}

#define SUM_BLOCK 128
#define SUM_BLOCKS 128 /* more than the longest packet that one page holds */

/*
 * Sum of `size` bytes from `offset` on in the frame, read one by one: for the few packets of which it
 * has to be known. Not static, and with a pointer that is made anew for each block, so that the
 * verifier looks at each loop once.
 */
__noinline __u32 sum_bytes(struct xdp_md *ctx, __u32 offset, __u32 size)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *at;
	__u64 sum = 0;

	for (int i = 0; i < SUM_BLOCKS && size >= SUM_BLOCK; i++) {
		at = start + (offset & OFFSET_MASK);
		if (at + SUM_BLOCK > end)
			break;
		sum += (__u32)bpf_csum_diff(NULL, 0, at, SUM_BLOCK, 0);
		offset += SUM_BLOCK;
		size -= SUM_BLOCK;
	}
	for (int i = 0; i < SUM_BLOCK / 2 && size >= 2; i++) {
		at = start + (offset & OFFSET_MASK);
		if (at + 2 > end)
			break;
		sum += *(__u16 *)at;
		offset += 2;
		size -= 2;
	}
	at = start + (offset & OFFSET_MASK);
	if (size == 1 && at + 1 <= end)
		sum += bpf_htons(*(__u8 *)at << 8);
	return fold_wide(sum);
}

/* Checksum of a header without options whose checksum field is zero. */
static __always_inline __u16 ipv4_checksum(const struct iphdr *ip)
{
	return ~fold(sum_words(ip, sizeof(*ip)));
}

/* Whether a TCP or UDP header within `end` holds a checksum. */
static __always_inline int has_checksum(const void *start, const void *end, __u8 protocol)
{
	const struct udphdr *udp = start;

	return protocol == IPPROTO_TCP ||
	       (protocol == IPPROTO_UDP && (const void *)(udp + 1) <= end && udp->check);
}

#define SUM_UNKNOWN 0xffffffff

/*
 * Sum of a whole IP packet without a look at its payload: a packet's transport sums up to the
 * complement of its pseudo header, since its checksum makes it so, and an IPv4 header to nothing. The
 * kernel calls it local checksum offload. SUM_UNKNOWN if the packet holds no such checksum; if it
 * holds a wrong one, so will the tunnel's be.
 */
static __always_inline __u32 packet_sum(const struct packet *p, const void *start, const void *end)
{
	if (p->ipv4) {
		const struct iphdr *ip = start;
		__u32 header, pseudo;

		if ((const void *)(ip + 1) > end || ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
			return SUM_UNKNOWN;
		header = ip->ihl * 4;
		if (!has_checksum(start + header, end, ip->protocol))
			return SUM_UNKNOWN;
		pseudo = sum_words(&ip->saddr, 8) + bpf_htons(ip->protocol) +
			 bpf_htons(p->length - header);
		return (__u16)~fold(pseudo);
	} else {
		const struct ipv6hdr *ip = start;

		if ((const void *)(ip + 1) > end || !has_checksum(ip + 1, end, ip->nexthdr))
			return SUM_UNKNOWN;
		/* Addresses and length are in the header and, complemented, in the transport. */
		return sum_words(ip, 4) + ((const __u16 *)ip)[3] + (__u16)~bpf_htons(ip->nexthdr);
	}
}

/*
 * Checksum of a tunnel's UDP over IPv6 with the packet that it carries behind `extra` bytes. Fragments
 * and the like are read for it: a tunnel may leave it out (RFC 6935), but many receivers drop that.
 */
static __always_inline __u16 tunnel_checksum(struct xdp_md *ctx, const struct packet *p,
					     const struct backend *b, const struct udphdr *udp,
					     __u32 extra, const void *end)
{
	const void *inner = (const void *)(udp + 1) + extra;
	__u32 sum = packet_sum(p, inner, end);
	__u16 check;

	if (sum == SUM_UNKNOWN)
		sum = sum_bytes(ctx, inner - (void *)(long)ctx->data, p->length);
	sum += sum_words(b->local, 16) + sum_words(b->remote, 16);
	sum += udp->len + bpf_htons(IPPROTO_UDP);
	sum += sum_words(udp, sizeof(*udp) + extra);
	check = ~fold(sum);
	return check ? check : 0xffff;
}
