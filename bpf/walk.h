/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DNAT: a backend that a ring doesn't name for a flow, but that is where the flow has to go. Places of the
 * ring are looked at in an order of the flow's own.
 */
#pragma once

#include <linux/bpf.h>

#include "hash.h"
#include "link.h"
#include "maps.h"
#include "packet.h"
#include "ring.h"
#include "types.h"

/* How many places of the ring are looked at: of ten nodes alike one finds its own backend 97 times of 100,
 * and the next connection looks at others. */
#define WALK_PLACES 32

/* Whose backend is looked for: this node's own, or that of one that didn't send the packet. */
enum walk_for { WALK_OWN, WALK_OTHER };

static __always_inline int walk_ends(struct xdp_md *ctx, const struct packet *p,
				     const struct backend *b, enum walk_for whose)
{
	if (!(b->flags & BACKEND_USABLE))
		return 0;
	if (!(b->flags & BACKEND_RELAY))
		return whose == WALK_OWN;
	return whose == WALK_OTHER && !returns_to_sender(ctx, p, b);
}

/* A backend that gets new flows, or NULL. The flow picks it, not its client. */
static __noinline struct backend *walk_ring(struct xdp_md *ctx, const struct packet *p,
					    const struct view *view, enum walk_for whose)
{
	__u64 hash = flow_hash(p, vip_hash(p), 0);
	struct backend *b;
	__u32 entry;

	if (!view->ring_size)
		return NULL;
	for (int i = 0; i < WALK_PLACES; i++) {
		hash = hash_end(hash_word(hash, i));
		entry = ring_entry(view->ring_base, view->ring_size, hash);
		if (entry == RING_NONE || (entry & RING_SLOT) >= view->slots)
			return NULL;
		b = backend_at(view, entry & RING_SLOT);
		if (b && walk_ends(ctx, p, b, whose))
			return b;
	}
	return NULL;
}
