/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Addresses have 16 bytes; IPv4 addresses are mapped into IPv6 (RFC 4291, section 2.5.5.2). MAC
 * addresses in packets and tables are read and written as a word and a half, as bytes would take
 * three times the instructions; on the stack that takes alignment.
 */
#pragma once

#include <linux/types.h>

#include <bpf/bpf_endian.h>

struct address {
	__u8 bytes[16];
};

static __always_inline void map_ipv4(__u8 mapped[16], __be32 address)
{
	__u32 *words = (__u32 *)mapped;

	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = address;
}

static __always_inline __be32 unmap_ipv4(const __u8 mapped[16])
{
	return ((const __u32 *)mapped)[3];
}

static __always_inline int is_mapped(const __u8 address[16])
{
	const __u32 *words = (const __u32 *)address;

	return !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

/* Whether it may be the address of a single host (RFC 1122, section 3.2.2). */
static __always_inline int is_unicast(const __u8 address[16])
{
	const __u32 *words = (const __u32 *)address;

	if (is_mapped(address))
		return address[12] && address[12] != 127 && address[12] < 224;
	return address[0] != 0xff && (words[0] || words[1] || words[2] || bpf_ntohl(words[3]) > 1);
}

static __always_inline int same_address(const void *a, const void *b)
{
	const __u32 *x = a, *y = b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static __always_inline void copy_mac(void *to, const void *from)
{
	*(__u32 *)to = *(const __u32 *)from;
	*(__u16 *)(to + 4) = *(const __u16 *)(from + 4);
}

static __always_inline int same_mac(const void *a, const void *b)
{
	return *(const __u32 *)a == *(const __u32 *)b &&
	       *(const __u16 *)(a + 4) == *(const __u16 *)(b + 4);
}
