/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a flow to a backend: the hash of the flow picks an entry of the service's Maglev ring
 * (Maglev, NSDI 2016, section 3.4).
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/hash.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "send/link.h"

/* No entry: the tables don't match the view, which is a defect. */
#define RING_NONE 0xffffffff

/*
 * The index of a hash in a ring of `size` entries: its upper half as a fraction, without division.
 */
static __always_inline __u32 ring_place(__u32 size, __u64 hash)
{
	return (hash >> 32) * size >> 32;
}

/*
 * The entry of a hash in the view's ring of `size` entries at chunk `base`. A slot that the view
 * doesn't have is none.
 */
static __always_inline __u32 ring_entry(const struct view *view, __u32 base, __u32 size, __u64 hash)
{
	__u32 place = ring_place(size, hash), few = view->slots <= RING_FEW_SLOTS, entry;
	__u32 chunk_key = base + (place / RING_CHUNK >> few);
	struct ring_chunk *chunk = element(rings, chunk_key, ring_count);

	if (!chunk)
		return RING_NONE;
	if (!few)
		return chunk->entry[place % RING_CHUNK];
	entry = chunk->few[place % (2 * RING_CHUNK)];
	return (entry & 0x80) << 8 | (entry & 0x7f);
}

static __always_inline struct backend *backend_at(const struct view *view, __u32 slot)
{
	__u32 key = view->backend_base + slot;

	return element(backends, key, backend_count);
}

/* The backend of a reference (slot, and generation << 16), or NULL if it isn't usable. */
static __always_inline struct backend *usable_backend(const struct view *view, __u32 ref)
{
	struct backend *backend;

	if ((ref & 0xffff) >= view->slots)
		return NULL;
	backend = backend_at(view, ref & 0xffff);
	if (!backend || !(backend->flags & BACKEND_USABLE) || backend->generation != ref >> 16)
		return NULL;
	return backend;
}

/*
 * How many ring entries are searched. With ten equal nodes, a node finds a backend of its own with
 * a probability of 97 %; the next connection searches other entries.
 */
#define SEARCH_PLACES 32

/* With DSR, a backend on this node, or on a peer that didn't send the packet. */
enum search { SEARCH_LOCAL, SEARCH_PEER };

static __always_inline int search_matches(struct xdp_md *ctx, const struct packet *p,
					  const struct backend *b, enum search where)
{
	const struct egress *out = egress_of(b);

	if (!out || !(b->flags & BACKEND_USABLE))
		return 0;
	if (!(b->flags & BACKEND_RELAY))
		return where == SEARCH_LOCAL;
	return where == SEARCH_PEER && !returns_to_sender(ctx, p, b, out);
}

/*
 * A backend that takes new flows, or NULL. Searches entries in an order that depends on the flow.
 */
static __noinline struct backend *search_ring(struct xdp_md *ctx, const struct packet *p,
					      const struct view *view, enum search where)
{
	__u64 hash = flow_hash(p, 0);
	struct backend *b;
	__u32 entry;

	if (!view->ring_size)
		return NULL;
	for (int i = 0; i < SEARCH_PLACES; i++) {
		hash = hash_end(hash_word(hash, i));
		entry = ring_entry(view, view->ring_base, view->ring_size, hash);
		if (entry == RING_NONE || (entry & RING_SLOT) >= view->slots)
			return NULL;
		b = backend_at(view, entry & RING_SLOT);
		if (b && search_matches(ctx, p, b, where))
			return b;
	}
	return NULL;
}
