/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Internet checksums (RFC 1071): sums of 16-bit words, whose byte order doesn't matter.
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

#include "core/address.h"
#include "core/packet.h"
#include "core/types.h"

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Folds a sum of 32-bit words. */
static __always_inline __u16 fold_wide(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum & 0xffffffff);
	return fold(sum);
}

/* Change of a sum when a word changes. */
static __always_inline __u64 change_word(__u16 from, __u16 to)
{
	return (__u64)(__u16)~from + to;
}

/* Updates a checksum incrementally (RFC 1624, equation 3). */
static __always_inline __u16 adjust_checksum(__u16 check, __u64 change)
{
	return ~fold_wide((__u16)~check + change);
}

/* Sum of `size` bytes, an even constant. */
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
#define SUM_BLOCKS 128 /* more than the longest packet that fits into a page */

/*
 * Sum of `size` bytes at `offset` in the frame; reads all of them, which only few packets need. A
 * global function that derives its pointer again for each block, so that the verifier checks each
 * loop once.
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

/* Checksum of an IPv4 header without options. Its checksum field must be zero. */
static __always_inline __u16 ipv4_checksum(const struct iphdr *ip)
{
	return ~fold(sum_words(ip, sizeof(*ip)));
}

/*
 * Whether a transport header is within `end` and has a checksum, which covers `length` bytes. A UDP
 * datagram may be shorter than the IP packet's payload (RFC 9868).
 */
static __always_inline int has_checksum(const void *start, const void *end, __u8 protocol,
					__u32 length)
{
	const struct udphdr *udp = start;

	return protocol == IPPROTO_TCP ||
	       (protocol == IPPROTO_UDP && (const void *)(udp + 1) <= end && udp->check &&
		udp->len == bpf_htons(length));
}

#define SUM_UNKNOWN 0xffffffff

/*
 * Sum of an IP packet without reading its payload: transport header and payload sum up to the
 * complement of the pseudo-header, and an IPv4 header to zero (local checksum offload in Linux).
 * Returns SUM_UNKNOWN for a packet without a checksum. A wrong checksum makes the tunnel's checksum
 * wrong too.
 */
static __always_inline __u32 packet_sum(const struct packet *p, const void *start, const void *end)
{
	if (p->ipv4) {
		const struct iphdr *ip = start;
		__u32 header, pseudo;

		if ((const void *)(ip + 1) > end || ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
			return SUM_UNKNOWN;
		header = ip->ihl * 4;
		if (!has_checksum(start + header, end, ip->protocol, p->length - header))
			return SUM_UNKNOWN;
		pseudo = sum_words(&ip->saddr, 8) + bpf_htons(ip->protocol) +
			 bpf_htons(p->length - header);
		return (__u16)~fold(pseudo);
	} else {
		const struct ipv6hdr *ip = start;

		if ((const void *)(ip + 1) > end ||
		    !has_checksum(ip + 1, end, ip->nexthdr, p->length - sizeof(*ip)))
			return SUM_UNKNOWN;
		/*
		 * Addresses and length cancel out: the transport's sum contains their complement.
		 */
		return sum_words(ip, 4) + ((const __u16 *)ip)[3] + (__u16)~bpf_htons(ip->nexthdr);
	}
}

/*
 * UDP checksum of a tunnel over IPv6 whose packet follows `extra` bytes of headers. Packets without
 * a transport checksum, like fragments, are summed up: zero checksums are allowed (RFC 6935), but
 * many receivers drop them.
 */
static __always_inline __u16 tunnel_checksum(struct xdp_md *ctx, const struct packet *p,
					     const __u8 local[16], const __u8 remote[16],
					     const struct udphdr *udp, __u32 extra, const void *end)
{
	const void *inner = (const void *)(udp + 1) + extra;
	__u32 sum = packet_sum(p, inner, end);
	__u16 check;

	if (sum == SUM_UNKNOWN)
		sum = sum_bytes(ctx, inner - (void *)(long)ctx->data, p->length);
	sum += sum_words(local, 16) + sum_words(remote, 16);
	sum += udp->len + bpf_htons(IPPROTO_UDP);
	sum += sum_words(udp, sizeof(*udp) + extra);
	check = ~fold(sum);
	return check ? check : 0xffff;
}
