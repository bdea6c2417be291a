/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The headers that may stand between IPv6 and its transport (RFC 8200, section 4). A few of them are
 * walked over, whatever they say; a longer chain is nobody's who means well.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>

#include "packet.h"
#include "stats.h"

#define MAX_EXTENSIONS 6

#define FRAGMENT_OFFSET6 0xfff8
#define FRAGMENT_MORE6 0x0001

/* What all extension headers begin with. Lengths leave out the first 8 bytes. */
struct extension {
	__u8 next;
	__u8 units; /* of 8 bytes; of 4 in an authentication header (RFC 4302, section 2.2) */
	__be16 fragment; /* of a fragment header: offset, in bytes, and "more" */
	__u32 id; /* the same */
};

/* Where a chain of extension headers leads. */
struct chain {
	__u32 length; /* bytes walked over */
	__u32 id; /* of the fragment header */
	__u16 fragment; /* its offset and "more" in host order; 0: none, or of a whole packet */
	__u8 next; /* protocol behind the chain */
	__u8 pad;
};

/* Mobility, HIP and Shim6 headers end a packet for its host alone: no transport follows. */
static __always_inline int is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_AH || next == IPPROTO_FRAGMENT;
}

/*
 * Walks the chain that begins `offset` bytes into the frame with a header of protocol `chain->next`.
 * Returns COUNTER_COUNT at the first header of another kind, or behind the header of a later fragment;
 * else the exit.
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
	return COUNTER_COUNT;
}
