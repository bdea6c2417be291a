/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv6 extension headers (RFC 8200, section 4). A few are skipped without interpretation; longer
 * chains don't occur in legitimate traffic.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>

#include "core/exit.h"
#include "core/packet.h"

#define MAX_EXTENSIONS 6

#define FRAGMENT_OFFSET6 0xfff8
#define FRAGMENT_MORE6 0x0001

/* The common start of extension headers. Lengths don't include the first 8 bytes. */
struct extension {
	__u8 next;
	__u8 units; /* of 8 bytes; of 4 in an authentication header (RFC 4302, section 2.2) */
	__be16 fragment; /* fragment header: offset in bytes, and "more fragments" */
	__u32 id; /* fragment header: identification */
};

/* Result of parsing a chain of extension headers. */
struct chain {
	__u32 length; /* bytes of the chain */
	__u32 id; /* identification, from the fragment header */
	__u16 fragment; /* offset and "more fragments", host order; 0: not a fragment */
	__u8 next; /* protocol after the chain */
	__u8 pad;
};

/* Mobility, HIP and Shim6 headers aren't listed: no transport header follows them. */
static __always_inline int is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_AH || next == IPPROTO_FRAGMENT;
}

/*
 * Parses the chain at `offset` in the frame, whose first header has protocol `chain->next`, up to
 * the first other header or the fragment header of a later fragment. Returns CONTINUE, or the
 * exit.
 */
__noinline enum counter walk_extensions(struct xdp_md *ctx, __u32 offset, struct chain *chain)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 length = 0;

	if (!chain)
		return COUNTER_PASS_MALFORMED;
	for (int i = 0; i < MAX_EXTENSIONS && is_extension(chain->next); i++) {
		struct extension *e = start + ((offset + length) & OFFSET_MASK);

		if ((void *)(e + 1) > end)
			return COUNTER_PASS_TRUNCATED;
		if (chain->next == IPPROTO_FRAGMENT) {
			chain->fragment = bpf_ntohs(e->fragment);
			chain->id = e->id;
			length += sizeof(*e);
		} else {
			length += 8 + e->units * (chain->next == IPPROTO_AH ? 4 : 8);
		}
		chain->next = e->next;
		if (chain->fragment & FRAGMENT_OFFSET6)
			break;
	}
	chain->length = length;
	if (is_extension(chain->next) && !(chain->fragment & FRAGMENT_OFFSET6))
		return COUNTER_PASS_EXTENSION_HEADER;
	return CONTINUE;
}
