/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a packet to a backend: a seeded hash of the flow picks an entry of the service's Maglev ring
 * (Maglev, NSDI 2016, section 3.4).
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "config.h"
#include "maps.h"
#include "parse.h"
#include "types.h"

/* One round: every bit of the word reaches the upper half of the hash. */
static __always_inline __u64 hash_word(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

/* Final avalanche (the constants of splitmix64's second round). */
static __always_inline __u64 hash_end(__u64 hash)
{
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
	return hash ^ (hash >> 31);
}

/*
 * Hash of the five-tuple and the segment; with affinity to the client, of all but the client's port.
 * The words are taken in wire order as they lie in memory; IPv4 leaves out the constant words of
 * mapped addresses.
 */
static __always_inline __u64 flow_hash(const struct packet *p, __u32 flags)
{
	const __u64 *source = (const __u64 *)p->source;
	const __u64 *vip = (const __u64 *)p->vip.address;
	__be16 port = p->source_port;
	__u64 hash = hash_seed;

	if (!p->ipv4)
		hash = hash_word(hash, source[0]);
	hash = hash_word(hash, source[1]);
	hash = hash_word(hash, (__u64)p->vip.segment_type << 32 | p->vip.segment_id);
	if (!p->ipv4)
		hash = hash_word(hash, vip[0]);
	hash = hash_word(hash, vip[1]);
	if (flags & VIEW_AFFINITY_CLIENT)
		port = 0;
	hash = hash_word(hash, (__u64)p->vip.protocol << 32 | (__u64)port << 16 | p->vip.port);
	return hash_end(hash);
}

/* What a lookup that can't fail returns if the tables don't hold what the view says. */
#define RING_NONE 0xffffffff

/* The entry of a hash in a ring of `size` entries that begins at chunk `base`. */
static __always_inline __u32 ring_entry(__u32 base, __u32 size, __u64 hash)
{
	/* The hash's upper half as a fraction of the ring: no division. */
	__u32 place = (hash >> 32) * size >> 32;
	__u32 chunk_key = base + place / RING_CHUNK;
	struct ring_chunk *chunk = bpf_map_lookup_elem(&rings, &chunk_key);

	return chunk ? chunk->entry[place % RING_CHUNK] : RING_NONE;
}

static __always_inline struct backend *backend_at(const struct view *view, __u32 slot)
{
	__u32 key = view->backend_base + slot;

	return bpf_map_lookup_elem(&backends, &key);
}
